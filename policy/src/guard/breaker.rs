//! The circuit breaker: a guard that ends the jobs of one person after another is wrong
//! about something, a rule, a reading or a name. Before it ends more than is usual it stops,
//! and only an admin has it go on.
//!
//! Each person counts at most [`MAX_COUNTED`] times, so that nobody stops the guard alone: a
//! person whose jobs are ended more often breaks rules on purpose.

use super::limits::milliseconds;
use super::memory::pairs;
use super::rules::Enforcement;
use super::whose::PersonKey;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The jobs that were ended of late, and whether these were too many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Breaker {
    ended: Ends,
    /// Those that a dry run would have ended.
    rehearsed: Ends,
    tripped_at: Option<Timestamp>,
    /// It was a dry run that stopped.
    is_trip_simulated: bool,
}

/// When jobs of each person were ended, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ends(#[serde(with = "pairs")] BTreeMap<PersonKey, Vec<Timestamp>>);

/// Which ends are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Ended,
    Rehearsed,
}

/// How often one person counts at most. Two, so that a guard that ends every job of a small
/// box still stops; where fewer ends are allowed in all, one.
const MAX_COUNTED: usize = 2;

/// How many ends of one person are remembered: more than count, since the end of a job that
/// could not be begun is taken back.
const MAX_REMEMBERED: usize = 16;

/// In which ended jobs are counted.
const WITHIN: Duration = Enforcement::TRIPS_WITHIN;

impl Ends {
    /// How many count, where `most` may be ended.
    fn count(&self, most: usize) -> usize {
        let counts = self.0.values().map(|ends| ends.len().min(cap(most)));
        counts.sum()
    }

    /// Whether one more of this person counts.
    fn would_count(&self, person: &PersonKey, most: usize) -> bool {
        self.0.get(person).map_or(0, Vec::len) < cap(most)
    }
}

/// How often one person counts, where `most` may be ended.
fn cap(most: usize) -> usize {
    MAX_COUNTED.min(most)
}

impl Breaker {
    /// Forgets what was long ago.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        let ms = milliseconds(WITHIN);
        let is_recent = |at: &Timestamp| *at > now || milliseconds(now.since(*at)) < ms;
        for Ends(of) in [&mut self.ended, &mut self.rehearsed] {
            of.retain(|_, ends| {
                ends.retain(is_recent);
                !ends.is_empty()
            });
        }
    }

    /// Whether one more job of this person may be ended, of `most`.
    pub(crate) fn allows(&self, counted: Counted, person: &PersonKey, most: u32) -> bool {
        let (ends, most) = (self.of(counted), most as usize);
        let has_room = ends.count(most) < most;
        self.tripped_at.is_none() && most > 0 && (has_room || !ends.would_count(person, most))
    }

    /// Whether a job may have its signals again that counted when it had the first.
    pub(crate) const fn allows_again(&self, most: u32) -> bool {
        self.tripped_at.is_none() && most > 0
    }

    const fn of(&self, counted: Counted) -> &Ends {
        match counted {
            Counted::Ended => &self.ended,
            Counted::Rehearsed => &self.rehearsed,
        }
    }

    /// Stops, and returns how many jobs counted, of `most`; `None` where it has stopped
    /// already.
    pub(crate) fn trip(&mut self, counted: Counted, most: u32, now: Timestamp) -> Option<u32> {
        if self.tripped_at.is_some() {
            return None;
        }
        self.tripped_at = Some(now);
        self.is_trip_simulated = counted == Counted::Rehearsed;
        let count = self.of(counted).count(most as usize);
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Counts one more job of this person.
    pub(crate) fn add(&mut self, counted: Counted, person: PersonKey, now: Timestamp) {
        let Ends(of) = match counted {
            Counted::Ended => &mut self.ended,
            Counted::Rehearsed => &mut self.rehearsed,
        };
        let ends = of.entry(person).or_default();
        ends.push(now);
        if ends.len() > MAX_REMEMBERED {
            ends.remove(0);
        }
    }

    /// Takes back a job that was counted and was not ended.
    pub(crate) fn remove(&mut self, person: &PersonKey, at: Timestamp) {
        let Ends(of) = &mut self.ended;
        if let Some(ends) = of.get_mut(person) {
            if let Some(position) = ends.iter().position(|it| *it == at) {
                ends.remove(position);
            }
            if ends.is_empty() {
                of.remove(person);
            }
        }
    }

    /// So much time was nobody's.
    pub(crate) fn moves(&mut self, ms: i64) {
        let Self {
            ended: Ends(ended),
            rehearsed: Ends(rehearsed),
            tripped_at: _,
            is_trip_simulated: _,
        } = self;
        for at in ended.values_mut().chain(rehearsed.values_mut()).flatten() {
            *at = Timestamp(at.0.saturating_add(ms));
        }
    }

    pub(crate) const fn tripped_at(&self) -> Option<Timestamp> {
        self.tripped_at
    }

    pub(crate) const fn is_trip_simulated(&self) -> bool {
        self.is_trip_simulated
    }
}
