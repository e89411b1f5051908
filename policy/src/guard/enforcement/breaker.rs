//! The circuit breaker: a guard that ends the jobs of one person after another is wrong
//! about something, a rule, a reading or a name. It stops before it ends more than is
//! usual, and only an admin restarts it.
//!
//! Each person counts at most [`MAX_COUNTED`] times, so that no single person stops the
//! guard: more frequent ends show that a person violates rules on purpose. One person can
//! start any number of containers. Each of them counts, but if they alone are too many, the
//! guard stops for owners who are no user of the host, and ends of other jobs only wait until
//! fewer count.

use crate::guard::limits::milliseconds;
use crate::guard::person_key::PersonKey;
use crate::guard::rules::EnforcementSettings;
use crate::guard::state::pairs;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The recent ends of jobs, and whether these were too many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CircuitBreaker {
    ended: EndTimes,
    /// Ends that a dry run simulated.
    simulated: EndTimes,
    tripped_at: Option<Timestamp>,
    /// Whether a dry run stopped.
    is_trip_simulated: bool,
    /// When it stopped for owners who are no user of the host.
    others_tripped_at: Option<Timestamp>,
}

/// When jobs of each person were ended, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct EndTimes(#[serde(with = "pairs")] BTreeMap<PersonKey, Vec<Timestamp>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    Real,
    Simulated,
}

/// How often one person counts at most. Two, so that a guard that ends every job of a small
/// host still stops; fewer if fewer ends are allowed in total.
const MAX_COUNTED: usize = 2;

/// How many ends of one person are kept: more than count, because an end that could not
/// begin is taken back.
const MAX_REMEMBERED: usize = 16;

const COUNTING_WINDOW: Duration = EnforcementSettings::BREAKER_WINDOW;

impl EndTimes {
    /// How many ends count, if `max_ended` are allowed.
    fn count(&self, max_ended: usize) -> usize {
        let counts = self
            .0
            .values()
            .map(|ends| ends.len().min(max_per_person(max_ended)));
        counts.sum()
    }

    /// The same if all owners who are no user of the host are one person. The ends of these owners
    /// alone are never too many.
    fn count_of_users(&self, max_ended: usize) -> usize {
        let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        for (person, ends) in &self.0 {
            *counts.entry(person.share()).or_default() += ends.len();
        }
        let most = max_per_person(max_ended);
        let most_of_others = most.min(max_ended.saturating_sub(1));
        let counts = counts.iter().map(|(share, count)| match share {
            Some(_) => most.min(*count),
            None => most_of_others.min(*count),
        });
        counts.sum()
    }

    /// Whether one more end of this person counts.
    fn would_count(&self, person: &PersonKey, max_ended: usize) -> bool {
        self.0.get(person).map_or(0, Vec::len) < max_per_person(max_ended)
    }
}

/// How often one person counts, if `max_ended` ends are allowed.
fn max_per_person(max_ended: usize) -> usize {
    MAX_COUNTED.min(max_ended)
}

impl CircuitBreaker {
    /// Drops the ends that are no longer recent.
    pub(crate) fn prune(&mut self, now: Timestamp) {
        let ms = milliseconds(COUNTING_WINDOW);
        let is_recent = |at: &Timestamp| *at > now || milliseconds(now.since(*at)) < ms;
        for EndTimes(of) in [&mut self.ended, &mut self.simulated] {
            of.retain_entries(|_, ends| {
                ends.retain(is_recent);
                !ends.is_empty()
            });
        }
    }

    /// Whether one more job of this person may be ended, if `max_ended` are allowed.
    pub(crate) fn allows(&self, counted: EndKind, person: &PersonKey, max_ended: u32) -> bool {
        let (ends, max_ended) = (self.end_times(counted), max_ended as usize);
        let has_room = ends.count(max_ended) < max_ended;
        self.tripped_at.is_none()
            && !self.is_stopped_for(person)
            && max_ended > 0
            && (has_room || !ends.would_count(person, max_ended))
    }

    /// Whether a job of this person may be signalled again. It counted when it was first
    /// signalled.
    pub(crate) const fn allows_retry(&self, person: &PersonKey, max_ended: u32) -> bool {
        self.tripped_at.is_none() && !self.is_stopped_for(person) && max_ended > 0
    }

    const fn end_times(&self, counted: EndKind) -> &EndTimes {
        match counted {
            EndKind::Real => &self.ended,
            EndKind::Simulated => &self.simulated,
        }
    }

    /// Stops, because a job of this person is one too many. Returns how many ends counted, if
    /// `max_ended` were allowed; `None` if it has stopped already, or stops only for owners
    /// who are no user of the host.
    pub(crate) fn trip(
        &mut self,
        (counted, person): (EndKind, &PersonKey),
        max_ended: u32,
        now: Timestamp,
    ) -> Option<u32> {
        if self.tripped_at.is_some() {
            return None;
        }
        let (ends, most) = (self.end_times(counted), max_ended as usize);
        if person.share().is_none() || ends.count_of_users(most) < most {
            self.others_tripped_at.get_or_insert(now);
            return None;
        }
        let count = ends.count(most);
        self.tripped_at = Some(now);
        self.is_trip_simulated = counted == EndKind::Simulated;
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Whether it stopped for owners like this one.
    pub(crate) const fn is_stopped_for(&self, person: &PersonKey) -> bool {
        person.share().is_none() && self.others_tripped_at.is_some()
    }

    /// Counts one more end of this person.
    pub(crate) fn add(&mut self, counted: EndKind, person: PersonKey, now: Timestamp) {
        let EndTimes(of) = match counted {
            EndKind::Real => &mut self.ended,
            EndKind::Simulated => &mut self.simulated,
        };
        let ends = of.entry(person).or_default();
        ends.push(now);
        if ends.len() > MAX_REMEMBERED {
            ends.remove(0);
        }
    }

    /// Takes back a counted end that did not happen.
    pub(crate) fn remove(&mut self, person: &PersonKey, at: Timestamp) {
        let EndTimes(of) = &mut self.ended;
        if let Some(ends) = of.get_mut(person) {
            if let Some(position) = ends.iter().position(|it| *it == at) {
                ends.remove(position);
            }
            if ends.is_empty() {
                of.remove(person);
            }
        }
    }

    /// Shifts the times by unobserved milliseconds.
    pub(crate) fn shift_time(&mut self, ms: i64) {
        let Self {
            ended: EndTimes(ended),
            simulated: EndTimes(simulated),
            tripped_at: _,
            is_trip_simulated: _,
            others_tripped_at: _,
        } = self;
        for at in ended.values_mut().chain(simulated.values_mut()).flatten() {
            *at = Timestamp(at.0.saturating_add(ms));
        }
    }

    pub(crate) const fn tripped_at(&self) -> Option<Timestamp> {
        self.tripped_at
    }

    pub(crate) const fn others_tripped_at(&self) -> Option<Timestamp> {
        self.others_tripped_at
    }

    pub(crate) const fn is_trip_simulated(&self) -> bool {
        self.is_trip_simulated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_for_containers_signals_none_of_them_again() {
        let now = Timestamp(1_000);
        let (user, container) = (PersonKey::User(1_000), PersonKey::Called("vllm".into()));
        let mut breaker = CircuitBreaker::default();
        breaker.add(EndKind::Real, container.clone(), now);
        assert!(breaker.allows_retry(&container, 5));
        assert_eq!(breaker.trip((EndKind::Real, &container), 5, now), None);
        assert!(!breaker.allows_retry(&container, 5));
        assert!(breaker.allows_retry(&user, 5));
    }
}
