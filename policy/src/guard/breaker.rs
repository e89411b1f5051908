//! The circuit breaker: a guard that ends one job after another is wrong about something,
//! a rule, a reading or a name. Before one more than is usual would be ended it stops, and
//! only an admin has it go on.

use super::limits::milliseconds;
use super::rules::Enforcement;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Who was ended of late, and whether that was too much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Breaker {
    /// When, for each job.
    ended: Vec<Timestamp>,
    /// The same of those that a dry run would have ended.
    #[serde(default)]
    rehearsed: Vec<Timestamp>,
    tripped_at: Option<Timestamp>,
}

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Who is ended.
    Ended,
    /// Who would be.
    Rehearsed,
}

/// In which ended jobs are counted.
const WITHIN: Duration = Enforcement::TRIPS_WITHIN;

impl Breaker {
    /// Forgets what was long ago.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        let ms = milliseconds(WITHIN);
        for counted in [&mut self.ended, &mut self.rehearsed] {
            counted.retain(|at| *at > now || milliseconds(now.since(*at)) < ms);
        }
    }

    /// Whether one more may be ended.
    pub(crate) const fn lets(&self, whom: Counted, most: u32) -> bool {
        self.tripped_at.is_none() && self.of(whom).len() < most as usize
    }

    const fn of(&self, whom: Counted) -> &Vec<Timestamp> {
        match whom {
            Counted::Ended => &self.ended,
            Counted::Rehearsed => &self.rehearsed,
        }
    }

    /// It stops; so many were ended before. `None` where it has stopped already.
    pub(crate) fn trips(&mut self, whom: Counted, now: Timestamp) -> Option<u32> {
        if self.tripped_at.is_some() {
            return None;
        }
        self.tripped_at = Some(now);
        Some(u32::try_from(self.of(whom).len()).unwrap_or(u32::MAX))
    }

    /// One more is ended.
    pub(crate) fn counts(&mut self, whom: Counted, now: Timestamp) {
        match whom {
            Counted::Ended => self.ended.push(now),
            Counted::Rehearsed => self.rehearsed.push(now),
        }
    }

    /// One that was counted was not ended.
    pub(crate) fn uncounts(&mut self, at: Timestamp) {
        if let Some(position) = self.ended.iter().position(|it| *it == at) {
            self.ended.remove(position);
        }
    }

    /// So much time was nobody's.
    pub(crate) fn moves(&mut self, ms: i64) {
        for at in self.ended.iter_mut().chain(&mut self.rehearsed) {
            *at = Timestamp(at.0.saturating_add(ms));
        }
    }

    pub(crate) const fn tripped_at(&self) -> Option<Timestamp> {
        self.tripped_at
    }
}
