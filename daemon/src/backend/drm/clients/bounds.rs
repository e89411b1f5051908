//! How much is read of whom: copies of a descriptor cost a person nothing, and what one
//! person opens must not hide what others do.

use super::look::Place;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// So many clients of a card are told apart: ten times what the busiest box has.
pub(super) const CLIENTS_MAX: usize = 20_000;

/// So many descriptors of a person are read at a poll beside those that clients are read
/// by. Those beyond have their turn at the next ones. A driver takes 10 to 50 us for one.
const READS_MAX: usize = 1_024;

/// So many clients of a person are read at a poll; the others are as they were.
const CLIENT_READS_MAX: usize = 2_048;

/// So many of each kind are read of all persons: half a second at most, so that a card's
/// readings are never late for what people open.
const READS_OF_ALL: usize = 4_096;

/// Why the utilization of a process is not known while its descriptors wait for their turn.
pub(super) const NOT_READ_YET: &str = "not all of its descriptors are read yet";

/// So many processes are named in a fault.
const NAMED: usize = 3;

/// The processes of which not all was read.
#[derive(Debug, Default)]
pub(super) struct Partly {
    /// Some of their descriptors have their turn at the next polls.
    pub(super) waiting: BTreeSet<ProcessKey>,
    /// They have more descriptors than are read, or their person has more clients.
    pub(super) overfull: BTreeSet<ProcessKey>,
}

impl Partly {
    pub(super) fn is_any(&self) -> bool {
        !self.waiting.is_empty() || !self.overfull.is_empty()
    }

    /// What is said of those that have more than is read.
    pub(super) fn fault(&self, card: &str) -> Option<String> {
        let pids = self.overfull.iter().map(|key| key.pid.to_string());
        let named: Vec<String> = pids.take(NAMED).collect();
        let (who, has) = match (named.as_slice(), self.overfull.len() > NAMED) {
            ([], _) => return None,
            ([only], _) => (format!("process {only}"), "has"),
            (some, false) => (format!("processes {}", some.join(", ")), "have"),
            (some, true) => (format!("processes {} and others", some.join(", ")), "have"),
        };
        Some(format!(
            "{who} {has} {card} open more often than is read: more may be used than is shown"
        ))
    }
}

/// What is left of what is read at one poll.
#[derive(Debug, Default)]
pub(super) struct Budget {
    left: BTreeMap<ProcessKey, usize>,
}

impl Budget {
    /// For clients that are read again through these.
    pub(super) fn of_clients(
        places: &[&Place],
        person: impl Fn(&ProcessKey) -> Option<u32>,
    ) -> Self {
        Self::new(places, person, CLIENT_READS_MAX, READS_OF_ALL)
    }

    /// For these others.
    pub(super) fn of_others(
        places: &[&Place],
        person: impl Fn(&ProcessKey) -> Option<u32>,
    ) -> Self {
        Self::new(places, person, READS_MAX, READS_OF_ALL)
    }

    fn new(
        places: &[&Place],
        person: impl Fn(&ProcessKey) -> Option<u32>,
        of_person: usize,
        of_all: usize,
    ) -> Self {
        let mut processes: BTreeMap<ProcessKey, usize> = BTreeMap::new();
        for (key, _) in places {
            *processes.entry(*key).or_default() += 1;
        }
        let mut persons: BTreeMap<Option<u32>, Vec<(ProcessKey, usize)>> = BTreeMap::new();
        for (key, count) in processes {
            persons.entry(person(&key)).or_default().push((key, count));
        }
        let wanted = persons.iter().map(|(person, processes)| {
            let count: usize = processes.iter().map(|(_, count)| count).sum();
            (*person, count.min(of_person))
        });
        let shares = shares(wanted, of_all);
        let of_person = |person| shares.get(&person).copied().unwrap_or(0);
        let left = persons
            .into_iter()
            .flat_map(|(person, processes)| self::shares(processes.into_iter(), of_person(person)));
        Self {
            left: left.collect(),
        }
    }

    /// Whether one more of this process is read.
    pub(super) fn take(&mut self, key: ProcessKey) -> bool {
        let left = self.left.get_mut(&key).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }
}

/// So many clients each person has room for. `None` is who is not known.
pub(super) fn rooms(
    places: &[Place],
    person: impl Fn(&ProcessKey) -> Option<u32>,
    all: usize,
) -> BTreeMap<Option<u32>, usize> {
    let mut of_process: BTreeMap<ProcessKey, usize> = BTreeMap::new();
    for (key, _) in places {
        *of_process.entry(*key).or_default() += 1;
    }
    let mut wanted: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for (key, count) in &of_process {
        *wanted.entry(person(key)).or_default() += count;
    }
    shares(wanted.into_iter(), all)
}

/// Divides so many among these, who want so many each. Those who want little leave the rest
/// to the others.
fn shares<K: Ord>(wanted: impl Iterator<Item = (K, usize)>, all: usize) -> BTreeMap<K, usize> {
    let mut by_need: Vec<(usize, K)> = wanted.map(|(of, count)| (count, of)).collect();
    by_need.sort_unstable();
    let (mut left, mut others) = (all, by_need.len());
    let mut shares = BTreeMap::new();
    for (count, of) in by_need {
        let share = count.min(left / others.max(1));
        shares.insert(of, share);
        left -= share;
        others -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::{DeviceNumber, Open};

    fn places(pid: u32, count: u32) -> Vec<Place> {
        let key = ProcessKey {
            pid,
            start_ticks: 1,
        };
        let number = DeviceNumber { major: 1, minor: 7 };
        let open = |fd| Open {
            number,
            fd,
            thread: None,
        };
        (0..count).map(|fd| (key, open(fd))).collect()
    }

    #[test]
    fn who_opens_most_leaves_the_others_all_that_they_need() {
        // Person 1 has processes 10 to 19.
        let person = |key: &ProcessKey| Some(key.pid / 10);
        let case = |opens: &[(u32, u32)], all| {
            let places: Vec<Place> = opens.iter().flat_map(|(pid, n)| places(*pid, *n)).collect();
            let rooms = rooms(&places, person, all).into_iter();
            rooms
                .map(|(person, room)| (person.unwrap(), room))
                .collect::<Vec<_>>()
        };
        assert_eq!(case(&[], 9), []);
        assert_eq!(case(&[(10, 3), (20, 4)], 9), [(1, 3), (2, 4)]);
        assert_eq!(case(&[(10, 30), (11, 30), (20, 4)], 9), [(1, 5), (2, 4)]);
        assert_eq!(
            case(&[(10, 30), (20, 1), (30, 9)], 9),
            [(1, 4), (2, 1), (3, 4)]
        );
        assert_eq!(
            case(&[(10, 30), (20, 1), (30, 2)], 9),
            [(1, 6), (2, 1), (3, 2)]
        );
    }

    #[test]
    fn a_person_is_read_so_much_at_a_poll_whatever_their_processes_have() {
        let person = |key: &ProcessKey| Some(key.pid / 1_000);
        let read = |opens: &[(u32, u32)], of_person, of_all| {
            let places: Vec<Place> = opens.iter().flat_map(|(pid, n)| places(*pid, *n)).collect();
            let places: Vec<&Place> = places.iter().collect();
            let mut budget = Budget::new(&places, person, of_person, of_all);
            let mut read: BTreeMap<u32, usize> = BTreeMap::new();
            for (key, _) in places {
                *read.entry(key.pid).or_default() += usize::from(budget.take(*key));
            }
            read.into_values().collect::<Vec<_>>()
        };
        let crowd: Vec<(u32, u32)> = (1_000..1_150).map(|pid| (pid, 90)).collect();
        let all = [crowd, vec![(2_000, 3)]].concat();
        let counts = read(&all, 300, 10_000);
        assert_eq!(counts.iter().sum::<usize>(), 303);
        assert_eq!(counts.last(), Some(&3));
        assert!(counts.iter().all(|count| *count > 1));
        // A process that has little leaves the rest to the person's others.
        assert_eq!(read(&[(1_000, 2), (1_001, 90)], 10, 100), [2, 8]);
        // And a person who needs little, to other persons.
        assert_eq!(read(&[(1_000, 90), (2_000, 4)], 20, 10), [6, 4]);
    }

    #[test]
    fn a_fault_names_a_few_processes() {
        let fault = |pids: std::ops::RangeInclusive<u32>| {
            let overfull = pids.flat_map(|pid| places(pid, 1)).map(|place| place.0);
            let partly = Partly {
                overfull: overfull.collect(),
                ..Partly::default()
            };
            partly.fault("card1")
        };
        let said = |who: &str| {
            Some(format!(
                "{who} card1 open more often than is read: more may be used than is shown"
            ))
        };
        assert_eq!(Partly::default().fault("card1"), None);
        assert_eq!(fault(7..=7), said("process 7 has"));
        assert_eq!(fault(7..=9), said("processes 7, 8, 9 have"));
        assert_eq!(fault(7..=10), said("processes 7, 8, 9 and others have"));
    }
}
