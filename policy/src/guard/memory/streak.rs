//! Since when something has been so without a break, as far as that is known.
//!
//! A short time of which nothing is known, as of a poll that came late, neither counts nor
//! breaks it; a longer one begins it anew. While nothing is known of the present, nothing
//! is known of the whole.

use super::super::limits::milliseconds;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};

/// What was seen of something that is so or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streak {
    /// Since when it has been looked at.
    since: Timestamp,
    /// Until when it was last not so.
    broken: Option<Timestamp>,
    /// Until when it was last not known for too long.
    unknown: Option<Timestamp>,
    /// For how many milliseconds since it began it was not known.
    missing_ms: u64,
    /// For how many of these, up to now, without a look at which it was known.
    missing_in_a_row_ms: u64,
}

/// So many milliseconds without a reading are short: three samples of ten seconds, or a
/// daemon that is started anew. Longer ones begin a streak anew.
pub(crate) const SHORT: u64 = 30_000;

/// The same of all that is missing in a streak, where one part in so many is more.
pub(crate) const SHARE: u64 = 20;

/// Whether something was so for a whole time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// Since then, and for so many milliseconds of which it is known.
    Since(Timestamp, u64),
    Not,
    Unknown,
}

impl Through {
    /// Whether both were so, and since when.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Not, _) | (_, Self::Not) => Self::Not,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Since(one, for_one), Self::Since(other, for_other)) => {
                Self::Since(one.max(other), for_one.min(for_other))
            }
        }
    }
}

impl Streak {
    pub(crate) const fn from(since: Timestamp) -> Self {
        Self {
            since,
            broken: None,
            unknown: None,
            missing_ms: 0,
            missing_in_a_row_ms: 0,
        }
    }

    /// It was not so, until then.
    pub(crate) fn breaks(&mut self, until: Timestamp) {
        self.broken = self.broken.max(Some(until));
        (self.missing_ms, self.missing_in_a_row_ms) = (0, 0);
    }

    /// It was so.
    pub(crate) const fn goes_on(&mut self) {
        self.missing_in_a_row_ms = 0;
    }

    /// It was not known for so many milliseconds, until then.
    pub(crate) fn is_unknown(&mut self, ms: u64, until: Timestamp) {
        self.missing_ms = self.missing_ms.saturating_add(ms);
        self.missing_in_a_row_ms = self.missing_in_a_row_ms.saturating_add(ms);
        let bearable = milliseconds(until.since(self.start())) / SHARE;
        if self.missing_in_a_row_ms > SHORT || self.missing_ms > bearable.max(SHORT) {
            self.unknown = self.unknown.max(Some(until));
            self.missing_ms = 0;
        }
    }

    /// Whether it was so for all of `length` up to `until`, of which it is known; `began`
    /// is since when it could be so at all.
    pub(crate) fn through(&self, length: u64, until: Timestamp, began: Timestamp) -> Through {
        let since = |moment: Timestamp| milliseconds(until.since(moment));
        // It was not so, or not there, for so long: that nothing is known of a moment
        // changes nothing.
        if since(self.broken.map_or(began, |broken| broken.max(began))) < length {
            return Through::Not;
        }
        let known = since(self.start()).saturating_sub(self.missing_ms);
        // It may have changed since the last reading: only a fresh one decides.
        if known >= length && self.missing_in_a_row_ms == 0 {
            Through::Since(self.start(), known)
        } else {
            Through::Unknown
        }
    }

    /// Since when it may have been so without a break.
    fn start(&self) -> Timestamp {
        let last = self.broken.max(self.unknown);
        last.map_or(self.since, |last| last.max(self.since))
    }
}
