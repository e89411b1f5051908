//! Bounds the descriptors that are read of each person and process: copies of a descriptor cost a
//! person nothing, and the descriptors of one person must not hide the activity of others.

use super::scan::ProcessDescriptor;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// Clients of a card that are distinguished: ten times as many as the busiest host has.
pub(super) const MAX_CLIENTS: usize = 20_000;

/// Descriptors of one person that are read at a poll, beside those through which clients are read.
/// The others are read at the next polls. A driver takes 10 to 50 µs for one.
pub(super) const MAX_READS_PER_PERSON: usize = 1_024;

/// Clients of one person that are read at a poll; the others keep their values.
pub(super) const MAX_CLIENT_READS_PER_PERSON: usize = 2_048;

/// The limit of each kind for all persons: half a second at most, so that open descriptors cannot
/// delay a card's readings.
pub(super) const MAX_READS: usize = 4_096;

/// The failure of a process's utilization while some of its descriptors wait to be read.
pub(super) const NOT_READ_YET: &str = "not all of its descriptors are read yet";

/// Processes that are named in a fault.
const MAX_NAMED_PIDS: usize = 3;

/// The processes that were not read completely.
#[derive(Debug, Default)]
pub(super) struct IncompleteProcesses {
    /// Some of their descriptors are read at the next polls.
    pub(super) waiting: BTreeSet<ProcessKey>,
    /// They have more descriptors than are read, or their person has more clients.
    pub(super) over_limit: BTreeSet<ProcessKey>,
}

impl IncompleteProcesses {
    pub(super) fn has_any(&self) -> bool {
        !self.waiting.is_empty() || !self.over_limit.is_empty()
    }

    /// The fault about the processes that have more than is read.
    pub(super) fn fault(&self, card: &str) -> Option<String> {
        let pids = self.over_limit.iter().map(|key| key.pid.to_string());
        let named: Vec<String> = pids.take(MAX_NAMED_PIDS).collect();
        let (subject, has) = match (named.as_slice(), self.over_limit.len() > MAX_NAMED_PIDS) {
            ([], _) => return None,
            ([only], _) => (format!("process {only}"), "has"),
            (some, false) => (format!("processes {}", some.join(", ")), "have"),
            (some, true) => (format!("processes {} and others", some.join(", ")), "have"),
        };
        Some(format!(
            "{subject} {has} {card} open too often to read all descriptors: actual use may be \
             higher than shown"
        ))
    }
}

/// The remaining reads of each process at one poll.
pub(super) struct ReadBudget(BTreeMap<ProcessKey, usize>);

impl ReadBudget {
    /// For reads of these descriptors: so many of each person, and of all persons.
    pub(super) fn new(
        descriptors: &[&ProcessDescriptor],
        person: impl Fn(&ProcessKey) -> Option<u32>,
        of_person: usize,
        of_all: usize,
    ) -> Self {
        let mut persons: BTreeMap<Option<u32>, Vec<(ProcessKey, usize)>> = BTreeMap::new();
        for (key, count) in count_by_process(descriptors.iter().copied()) {
            persons.entry(person(&key)).or_default().push((key, count));
        }
        let wanted = persons.iter().map(|(person, processes)| {
            let count: usize = processes.iter().map(|(_, count)| count).sum();
            (*person, count.min(of_person))
        });
        let shares = divide_fairly(wanted, of_all);
        let of_person = |person| shares.get(&person).copied().unwrap_or(0);
        let left = persons.into_iter().flat_map(|(person, processes)| {
            divide_fairly(processes.into_iter(), of_person(person))
        });
        Self(left.into_map())
    }

    /// Uses one read of this process, if any is left.
    pub(super) fn take(&mut self, key: ProcessKey) -> bool {
        let left = self.0.get_mut(&key).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }
}

/// The number of clients allowed for each person. `None` stands for unknown persons.
pub(super) fn client_quotas(
    descriptors: &[ProcessDescriptor],
    person: impl Fn(&ProcessKey) -> Option<u32>,
    all: usize,
) -> BTreeMap<Option<u32>, usize> {
    let mut wanted: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for (key, count) in count_by_process(descriptors.iter()) {
        *wanted.entry(person(&key)).or_default() += count;
    }
    divide_fairly(wanted.into_iter(), all)
}

fn count_by_process<'a>(
    descriptors: impl Iterator<Item = &'a ProcessDescriptor>,
) -> BTreeMap<ProcessKey, usize> {
    let mut counts: BTreeMap<ProcessKey, usize> = BTreeMap::new();
    for (key, _) in descriptors {
        *counts.entry(*key).or_default() += 1;
    }
    counts
}

/// Divides `all` fairly among requesters that want these counts. Requesters that want little leave
/// the rest to the others.
fn divide_fairly<K: Ord>(
    wanted: impl Iterator<Item = (K, usize)>,
    all: usize,
) -> BTreeMap<K, usize> {
    let mut by_need: Vec<(usize, K)> = wanted.map(|(of, count)| (count, of)).collect();
    by_need.sort_indirect();
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
    use crate::fd_scan::{DeviceNumber, OpenDescriptor};

    fn descriptors_of(pid: u32, count: u32) -> Vec<ProcessDescriptor> {
        let key = ProcessKey::new(pid, 1);
        let number = DeviceNumber { major: 1, minor: 7 };
        let open = |fd| OpenDescriptor {
            number,
            fd,
            thread: None,
        };
        (0..count).map(|fd| (key, open(fd))).collect()
    }

    fn all_descriptors(opens: &[(u32, u32)]) -> Vec<ProcessDescriptor> {
        let each = opens.iter();
        each.flat_map(|(pid, count)| descriptors_of(*pid, *count))
            .collect()
    }

    #[test]
    fn quotas_favour_small_users() {
        // Person 1 has processes 10 to 19.
        let person = |key: &ProcessKey| Some(key.pid / 10);
        let case = |opens: &[(u32, u32)], all| {
            let rooms = client_quotas(&all_descriptors(opens), person, all).into_iter();
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
    fn reads_are_bounded_per_person() {
        let person = |key: &ProcessKey| Some(key.pid / 1_000);
        let read = |opens: &[(u32, u32)], of_person, of_all| {
            let descriptors = all_descriptors(opens);
            let descriptors: Vec<&ProcessDescriptor> = descriptors.iter().collect();
            let mut budget = ReadBudget::new(&descriptors, person, of_person, of_all);
            let mut read: BTreeMap<u32, usize> = BTreeMap::new();
            for (key, _) in descriptors {
                *read.entry(key.pid).or_default() += usize::from(budget.take(*key));
            }
            read.into_values().collect::<Vec<_>>()
        };
        let many: Vec<(u32, u32)> = (1_000..1_150).map(|pid| (pid, 90)).collect();
        let all = [many, vec![(2_000, 3)]].concat();
        let counts = read(&all, 300, 10_000);
        assert_eq!(counts.iter().sum::<usize>(), 303);
        assert_eq!(counts.last(), Some(&3));
        assert!(counts.iter().all(|count| *count > 1));
        // A process with few descriptors leaves the rest to the person's other processes.
        assert_eq!(read(&[(1_000, 2), (1_001, 90)], 10, 100), [2, 8]);
        // A person with few descriptors leaves the rest to other persons.
        assert_eq!(read(&[(1_000, 90), (2_000, 4)], 20, 10), [6, 4]);
    }

    #[test]
    fn fault_names_a_few_processes() {
        let fault = |pids: std::ops::RangeInclusive<u32>| {
            let over_limit = pids
                .flat_map(|pid| descriptors_of(pid, 1))
                .map(|descriptor| descriptor.0);
            let partly = IncompleteProcesses {
                over_limit: over_limit.collect(),
                ..IncompleteProcesses::default()
            };
            partly.fault("card1")
        };
        let fault_text = |subject: &str| {
            Some(format!(
                "{subject} card1 open too often to read all descriptors: actual use may be higher \
                 than shown"
            ))
        };
        assert_eq!(IncompleteProcesses::default().fault("card1"), None);
        assert_eq!(fault(7..=7), fault_text("process 7 has"));
        assert_eq!(fault(7..=9), fault_text("processes 7, 8, 9 have"));
        assert_eq!(
            fault(7..=10),
            fault_text("processes 7, 8, 9 and others have")
        );
    }
}
