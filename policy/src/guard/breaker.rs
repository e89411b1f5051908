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
    tripped_at: Option<Timestamp>,
}

/// In which ended jobs are counted.
const WITHIN: Duration = Enforcement::TRIPS_WITHIN;

impl Breaker {
    /// Forgets what was long ago.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        let ms = milliseconds(WITHIN);
        self.ended
            .retain(|at| *at > now || milliseconds(now.since(*at)) < ms);
    }

    /// Whether one more may be ended.
    pub(crate) fn lets(&self, most: u32) -> bool {
        self.tripped_at.is_none() && self.ended.len() < most as usize
    }

    /// It stops; so many were ended before. `None` where it has stopped already.
    pub(crate) fn trips(&mut self, now: Timestamp) -> Option<u32> {
        if self.tripped_at.is_some() {
            return None;
        }
        self.tripped_at = Some(now);
        Some(u32::try_from(self.ended.len()).unwrap_or(u32::MAX))
    }

    /// One more is ended.
    pub(crate) fn counts(&mut self, now: Timestamp) {
        self.ended.push(now);
    }

    /// One that was counted was not ended.
    pub(crate) fn uncounts(&mut self, at: Timestamp) {
        if let Some(position) = self.ended.iter().position(|it| *it == at) {
            self.ended.remove(position);
        }
    }

    /// So much time was nobody's.
    pub(crate) fn moves(&mut self, ms: i64) {
        for at in &mut self.ended {
            *at = Timestamp(at.0.saturating_add(ms));
        }
    }

    pub(crate) const fn tripped_at(&self) -> Option<Timestamp> {
        self.tripped_at
    }
}
