//! Since when a condition has held without a break, as far as that is known.
//!
//! A short time in which nothing is known, such as a late poll, neither counts nor breaks
//! the streak; a longer one restarts it. While the present is unknown, the whole is
//! unknown.

use super::super::limits::milliseconds;
use super::pairs::serialize_as_list;
use gpukill_proto::units::Timestamp;
use serde::Deserialize;

/// The observed time of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Streak {
    /// Start of the observation.
    since: Timestamp,
    /// Until when the condition last did not hold.
    broken: Option<Timestamp>,
    /// Until when the condition was last unknown for too long.
    unknown: Option<Timestamp>,
    /// Milliseconds since the streak began in which the condition was unknown.
    missing_ms: u64,
    /// Milliseconds up to now without an observation of the condition.
    missing_in_a_row_ms: u64,
}

serialize_as_list!(Streak {
    since,
    broken,
    unknown,
    missing_ms,
    missing_in_a_row_ms
});

/// Milliseconds without a reading that are short: three samples of ten seconds, or a
/// restart of the daemon. A longer time restarts a streak.
pub(crate) const MAX_UNKNOWN_MS: u64 = 30_000;

/// The same for all unknown time in a streak: one part in this many, if that is more.
pub(crate) const MAX_UNKNOWN_DIVISOR: u64 = 20;

/// Whether a condition held for a whole time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreakStatus {
    /// Since this moment, and for this many known milliseconds.
    Since(Timestamp, u64),
    Broken,
    Unknown,
}

impl StreakStatus {
    /// Whether both held, and since when.
    pub(crate) fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Broken, _) | (_, Self::Broken) => Self::Broken,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Since(one, for_one), Self::Since(other, for_other)) => {
                Self::Since(one.max(other), for_one.min(for_other))
            }
        }
    }
}

impl Streak {
    pub(crate) const fn starting_at(since: Timestamp) -> Self {
        Self {
            since,
            broken: None,
            unknown: None,
            missing_ms: 0,
            missing_in_a_row_ms: 0,
        }
    }

    /// The condition did not hold, until this moment.
    pub(crate) fn record_broken(&mut self, until: Timestamp) {
        self.broken = self.broken.max(Some(until));
        (self.missing_ms, self.missing_in_a_row_ms) = (0, 0);
    }

    /// The condition held.
    pub(crate) const fn record_unbroken(&mut self) {
        self.missing_in_a_row_ms = 0;
    }

    /// The condition was unknown for this many milliseconds, until this moment.
    pub(crate) fn record_unknown(&mut self, ms: u64, until: Timestamp) {
        self.missing_ms = self.missing_ms.saturating_add(ms);
        self.missing_in_a_row_ms = self.missing_in_a_row_ms.saturating_add(ms);
        let bearable = milliseconds(until.since(self.start())) / MAX_UNKNOWN_DIVISOR;
        if self.missing_in_a_row_ms > MAX_UNKNOWN_MS
            || self.missing_ms > bearable.max(MAX_UNKNOWN_MS)
        {
            self.unknown = self.unknown.max(Some(until));
            self.missing_ms = 0;
        }
    }

    /// Whether the condition held for all of `length` up to `until`, with that much known;
    /// `start` is the moment from which it could hold at all.
    pub(crate) fn status(&self, length: u64, until: Timestamp, start: Timestamp) -> StreakStatus {
        let since = |moment: Timestamp| milliseconds(until.since(moment));
        // It did not hold, or could not, until too recently: an unknown moment changes
        // nothing.
        if since(self.broken.map_or(start, |broken| broken.max(start))) < length {
            return StreakStatus::Broken;
        }
        let known = since(self.start()).saturating_sub(self.missing_ms);
        // It may have changed since the last reading: only a fresh one decides.
        if known >= length && self.missing_in_a_row_ms == 0 {
            StreakStatus::Since(self.start(), known)
        } else {
            StreakStatus::Unknown
        }
    }

    /// Since when the condition may have held without a break.
    fn start(&self) -> Timestamp {
        let last = self.broken.max(self.unknown);
        last.map_or(self.since, |last| last.max(self.since))
    }
}
