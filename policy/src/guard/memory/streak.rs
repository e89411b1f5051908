//! Since when something has been so without a break, as far as that is known.

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
    /// Until when it was last not known.
    unknown: Option<Timestamp>,
}

/// Whether something was so for a whole time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// Since then.
    Since(Timestamp),
    Not,
    Unknown,
}

impl Streak {
    pub(crate) const fn from(since: Timestamp) -> Self {
        Self {
            since,
            broken: None,
            unknown: None,
        }
    }

    /// It was not so, until then.
    pub(crate) fn breaks(&mut self, until: Timestamp) {
        self.broken = self.broken.max(Some(until));
    }

    /// It was not known, until then.
    pub(crate) fn is_unknown(&mut self, until: Timestamp) {
        self.unknown = self.unknown.max(Some(until));
    }

    /// Whether it was so for all of `length` up to `until`; `began` is since when it
    /// could be so at all.
    pub(crate) fn through(&self, length: u64, until: Timestamp, began: Timestamp) -> Through {
        let is_within = |moment: Timestamp| milliseconds(until.since(moment)) < length;
        if self.broken.is_some_and(is_within) {
            return Through::Not;
        }
        if self.unknown.is_some_and(is_within) {
            return Through::Unknown;
        }
        if is_within(self.since) {
            // What was before it was looked at is not known.
            return if began < self.since && !is_within(began) {
                Through::Unknown
            } else {
                Through::Not
            };
        }
        let last = self.broken.max(self.unknown);
        Through::Since(last.map_or(self.since, |last| last.max(self.since)))
    }
}
