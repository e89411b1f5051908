//! How much is read of whom: copies of a descriptor cost a person nothing, and what one
//! person opens must not hide what others do.

use super::look::Place;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// So many clients of a card are told apart: ten times what the busiest box has.
pub(super) const CLIENTS_MAX: usize = 20_000;

/// So many descriptors of a process are read at a poll beside those that its clients are
/// read by. Those beyond have their turn at the next ones.
pub(super) const READS_MAX: usize = 1_024;

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

/// So many clients each person has room for. Those who need little leave the rest to the
/// others. `None` is who is not known.
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
    let mut by_need: Vec<(usize, Option<u32>)> = wanted
        .into_iter()
        .map(|(person, count)| (count, person))
        .collect();
    by_need.sort_unstable();
    let (mut left, mut persons) = (all, by_need.len());
    let mut rooms = BTreeMap::new();
    for (count, person) in by_need {
        let room = count.min(left / persons.max(1));
        rooms.insert(person, room);
        left -= room;
        persons -= 1;
    }
    rooms
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
