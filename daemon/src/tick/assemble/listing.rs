//! Which process had a listed pid when its driver first listed it.
//!
//! A driver may go on listing the pid of a process that has ended, and the kernel may give
//! that pid to another process. A list names no start time, so that each list alone would
//! name the new process. The process that had the pid when a fresh list first had it is
//! remembered for as long as the fresh lists of that device have the pid.

use super::People;
use crate::backend::DeviceReadings;
use crate::holders::Found;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use gpukill_proto::text::LISTED_BEFORE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a pid was when a fresh list first had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    Process(ProcessKey),
    /// No process had it, or only one that began after the list was read.
    NoProcess,
    /// Its process could not be read: it may be any that is read later.
    Unknown,
}

/// What is remembered of the pids that fresh lists have.
#[derive(Debug, Default)]
pub(super) struct Listings {
    first: BTreeMap<DeviceId, BTreeMap<u32, Occupant>>,
    /// The pids of which this poll found that no process has them.
    absent: BTreeSet<u32>,
    /// What processes have open, as far as that is known.
    found: Arc<Found>,
    /// When the search for open descriptors was last asked for.
    searched_at: Option<Instant>,
}

/// The search for open descriptors ends a minute after it was asked for, where nothing else
/// needs it. It costs a second of a processor on a box of 10,000 processes.
const SEARCH_AGAIN: Duration = Duration::from_secs(60);

impl Listings {
    /// Takes what this poll knows of pids beside the lists.
    pub(super) fn inform(&mut self, absent: &BTreeSet<u32>, found: &Arc<Found>) {
        self.absent.clone_from(absent);
        self.found = Arc::clone(found);
    }

    /// Takes a fresh list. `then` are the processes that may have been there when it was
    /// read, `now` are those of this poll.
    pub(super) fn take(&mut self, read: &DeviceReadings, then: &People, now: &People) {
        let Reading::Value(listed) = &read.processes else {
            return;
        };
        // A list that is not whole does not say that a pid has left it.
        let is_whole = read.instances_fault.is_none();
        let before = self.first.remove(&read.id).unwrap_or_default();
        let mut first = if is_whole {
            BTreeMap::new()
        } else {
            before.clone()
        };
        for process in listed {
            let pid = process.pid;
            let current = then.get(&pid).map(|identity| identity.key);
            let seen_by_backend = process
                .start_ticks
                .map(|start_ticks| ProcessKey { pid, start_ticks });
            let known = before.get(&pid).copied();
            let occupant = match (seen_by_backend, current) {
                (Some(key), _) => Occupant::Process(key),
                (None, Some(key)) if self.has_open(read, key) => Occupant::Process(key),
                (None, current) => match known {
                    Some(known) if known != Occupant::Unknown => known,
                    Some(_) | None => self.occupant(pid, current, now),
                },
            };
            first.insert(pid, occupant);
        }
        self.first.insert(read.id.clone(), first);
    }

    fn occupant(&self, pid: u32, current: Option<ProcessKey>, now: &People) -> Occupant {
        match current {
            Some(key) => Occupant::Process(key),
            // The process of now began after the list was read.
            None if now.contains_key(&pid) || self.absent.contains(&pid) => Occupant::NoProcess,
            None => Occupant::Unknown,
        }
    }

    /// Whether the process has a device file of this GPU open.
    fn has_open(&self, read: &DeviceReadings, key: ProcessKey) -> bool {
        let open = self.found.processes.get(&key).into_iter().flatten();
        let mut numbers = open.map(|open| open.number);
        numbers.any(|number| {
            let mut nodes = read.nodes.iter();
            nodes.any(|node| !node.shared && node.number == number)
        })
    }

    /// Whether the lists of this device have had the pid since before this process had it.
    pub(super) fn is_of_another(&self, device: &DeviceId, key: ProcessKey) -> bool {
        let first = self.first.get(device).and_then(|it| it.get(&key.pid));
        match first {
            Some(Occupant::Process(first)) => *first != key,
            Some(Occupant::NoProcess) => true,
            Some(Occupant::Unknown) | None => false,
        }
    }

    /// Whether the lists of this device have had the pid since this process had it.
    pub(super) fn is_still_of(&self, device: &DeviceId, key: ProcessKey) -> bool {
        let first = self.first.get(device).and_then(|it| it.get(&key.pid));
        first == Some(&Occupant::Process(key))
    }

    /// Whether this poll found that no process has the pid.
    pub(super) fn is_absent(&self, pid: u32) -> bool {
        self.absent.contains(&pid)
    }

    /// Whether the descriptors of all processes are to be searched now, because a listed pid
    /// is another process's: that process may use the GPU too.
    pub(super) fn wants_search(&mut self, has_doubtful: bool, at: Instant) -> bool {
        let is_early = |last: Instant| at.saturating_duration_since(last) < SEARCH_AGAIN;
        if !has_doubtful || self.searched_at.is_some_and(is_early) {
            return false;
        }
        self.searched_at = Some(at);
        true
    }

    /// Forgets devices that are no more.
    pub(super) fn keep_only(&mut self, here: &BTreeSet<&DeviceId>) {
        self.first.retain(|device, _| here.contains(device));
    }
}

/// Why nothing is known of a listed pid that another process has now.
pub(super) fn listed_before<T>() -> Reading<T> {
    Reading::Failed(LISTED_BEFORE.into())
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::super::tests::{latest, listed, person};
    use super::*;
    use crate::backend::reader::Latest;
    use crate::backend::{Node, ProcessReadings};
    use crate::holders::{DeviceNumber, Open};
    use crate::host::users::{System, Users};
    use gpukill_proto::snapshot::{InstanceId, Snapshot};
    use gpukill_proto::units::Timestamp;

    type Lists = [(&'static str, Latest); 1];

    /// Polls of a box, each a second after the one before.
    struct Polls {
        memory: Memory,
        users: Users,
        now: i64,
    }

    impl Polls {
        fn new() -> Self {
            Self {
                memory: Memory::default(),
                users: Users::new(System::here()),
                now: 0,
            }
        }

        fn poll(&mut self, lists: &Lists, people: &People) -> Snapshot {
            self.now += 1_000;
            let now = Timestamp(self.now);
            self.memory.assemble(lists, people, &self.users, now).0
        }

        /// The start of the process of each row of a poll, or why it is not known.
        fn rows(&mut self, lists: &Lists, people: &People) -> Vec<Reading<u64>> {
            let rows = self.poll(lists, people).processes.into_iter();
            rows.map(|row| row.start_ticks).collect()
        }
    }

    fn changed(lists: Lists, change: impl FnOnce(&mut DeviceReadings)) -> Lists {
        let [(name, latest)] = lists;
        let (readings, taken_at) = latest.readings.clone().unwrap();
        let mut readings = readings.as_ref().clone();
        change(&mut readings.devices[0]);
        let readings = Some((Arc::new(readings), taken_at));
        [(name, Latest { readings, ..latest })]
    }

    fn fresh() -> Lists {
        latest(listed(), true)
    }

    fn old() -> Lists {
        latest(listed(), false)
    }

    fn empty() -> Lists {
        latest(Reading::Value(Vec::new()), true)
    }

    fn pid_7_since(start_ticks: u64) -> People {
        [person(7, start_ticks)].into()
    }

    fn is(start_ticks: u64) -> Vec<Reading<u64>> {
        vec![Reading::Value(start_ticks)]
    }

    fn another() -> Vec<Reading<u64>> {
        vec![listed_before()]
    }

    fn nobody() -> Vec<Reading<u64>> {
        vec![Reading::Failed("no such process here".into())]
    }

    #[test]
    fn a_pid_that_stays_listed_is_never_the_next_process_s() {
        let mut polls = Polls::new();
        let (first, next, none) = (pid_7_since(100), pid_7_since(900), People::new());
        assert_eq!(polls.rows(&fresh(), &first), is(100));
        assert_eq!(polls.rows(&fresh(), &none), nobody());
        for _ in 0..3 {
            let snapshot = polls.poll(&fresh(), &next);
            let row = &snapshot.processes[0];
            assert_eq!(row.pid, 7);
            let why = Some(LISTED_BEFORE);
            assert_eq!((row.start_ticks.failure(), row.key()), (why, None));
            assert_eq!((row.owner.failure(), row.name.failure()), (why, why));
            assert!(row.memory.known().is_some());
            assert_eq!(snapshot.devices[0].process_count, Reading::Value(1));
        }
        // Lists that are old, failed, or lack a part, do not say that it has left.
        assert_eq!(polls.rows(&old(), &next), another());
        let failed = latest(Reading::Failed("999".into()), true);
        assert_eq!(polls.rows(&failed, &next), []);
        let in_part = changed(empty(), |read| read.instances_fault = Some("999".into()));
        assert_eq!(polls.rows(&in_part, &next), []);
        assert_eq!(polls.rows(&fresh(), &next), another());
        // A fresh list without it does.
        assert_eq!(polls.rows(&empty(), &next), []);
        assert_eq!(polls.rows(&fresh(), &next), is(900));
    }

    #[test]
    fn a_pid_that_was_no_process_when_it_was_listed_is_not_a_later_one_s() {
        let next = pid_7_since(900);
        let mut polls = Polls::new();
        polls.memory.inform(&[7].into(), &Arc::default());
        assert_eq!(polls.rows(&fresh(), &People::new()), nobody());
        polls.memory.inform(&BTreeSet::new(), &Arc::default());
        assert_eq!(polls.rows(&fresh(), &next), another());
        // One that could not be read then may be the one that is read now.
        let mut polls = Polls::new();
        assert_eq!(polls.rows(&fresh(), &People::new()), nobody());
        assert_eq!(polls.rows(&fresh(), &next), is(900));
        let third = pid_7_since(1_000);
        assert_eq!(polls.rows(&fresh(), &third), another());
    }

    #[test]
    fn a_process_that_began_after_the_list_was_read_is_not_of_it() {
        let next = pid_7_since(900);
        let key = next[&7].key;
        let read = |lists: Lists| lists[0].1.readings.as_ref().unwrap().0.devices[0].clone();
        let mut listings = Listings::default();
        listings.take(&read(fresh()), &People::new(), &next);
        listings.take(&read(fresh()), &next, &next);
        assert!(listings.is_of_another(&DeviceId("GPU-0".into()), key));
    }

    #[test]
    fn a_process_that_has_the_gpu_open_uses_it() {
        let number = |minor| DeviceNumber { major: 195, minor };
        let node = |minor, shared| Node {
            name: format!("nvidia{minor}"),
            number: number(minor),
            shared,
        };
        let lists = || {
            changed(fresh(), |it| {
                it.nodes = vec![node(3, false), node(255, true)]
            })
        };
        let (first, next) = (pid_7_since(100), pid_7_since(900));
        // Another GPU's file, one that all have, another process's, and its own.
        let cases = [
            (4, 900, false),
            (255, 900, false),
            (3, 100, false),
            (3, 900, true),
        ];
        for (minor, start_ticks, uses) in cases {
            let mut polls = Polls::new();
            polls.rows(&lists(), &first);
            assert_eq!(polls.rows(&lists(), &next), another());
            let open = Open {
                number: number(minor),
                fd: 3,
                thread: None,
            };
            let pid = 7;
            let found = Found {
                processes: [(ProcessKey { pid, start_ticks }, vec![open])].into(),
                unseen: None,
                ..Found::default()
            };
            polls.memory.inform(&BTreeSet::new(), &Arc::new(found));
            let shown = if uses { is(900) } else { another() };
            assert_eq!(polls.rows(&lists(), &next), shown, "{minor} {start_ticks}");
            // It goes on to, when nobody searches any more.
            polls.memory.inform(&BTreeSet::new(), &Arc::default());
            assert_eq!(polls.rows(&lists(), &next), shown, "{minor} {start_ticks}");
        }
    }

    #[test]
    fn each_device_has_its_own_list_and_its_instances_have_one_together() {
        let on = |gpu: u32, instances: [u32; 2]| {
            let row = |gi| ProcessReadings {
                instance: Some(InstanceId {
                    gpu: gi,
                    compute: 0,
                }),
                ..listed().known().unwrap()[0].clone()
            };
            changed(fresh(), |read| {
                read.id = DeviceId(format!("GPU-{gpu}"));
                read.processes = Reading::Value(instances.map(row).into());
            })
        };
        let (first, next) = (pid_7_since(100), pid_7_since(900));
        let mut polls = Polls::new();
        let mut both = |instances, second: &[ProcessReadings], people: &People| {
            let lists = on(0, instances);
            let more = changed(on(1, [1, 2]), |it| {
                it.processes = Reading::Value(second.into())
            });
            let [(name, latest)] = lists;
            let (readings, at) = latest.readings.clone().unwrap();
            let mut readings = readings.as_ref().clone();
            let more = &more[0].1.readings.as_ref().unwrap().0;
            readings.devices.extend(more.devices.clone());
            let readings = Some((Arc::new(readings), at));
            polls.rows(&[(name, Latest { readings, ..latest })], people)
        };
        let all = |rows: [Vec<Reading<u64>>; 3]| rows.concat();
        let on_second = listed().known().unwrap().clone();
        assert_eq!(both([1, 2], &[], &first), [is(100), is(100)].concat());
        // The instances of a GPU are not told apart: the pid stays listed.
        let rows = both([2, 3], &on_second, &next);
        assert_eq!(rows, all([another(), another(), is(900)]));
    }

    #[test]
    fn what_a_backend_saw_itself_needs_no_list_before() {
        let seen = |start_ticks| {
            changed(fresh(), |read| {
                let mut all = listed().known().unwrap().clone();
                all[0].start_ticks = Some(start_ticks);
                read.processes = Reading::Value(all);
            })
        };
        let mut polls = Polls::new();
        assert_eq!(polls.rows(&seen(100), &pid_7_since(100)), is(100));
        assert_eq!(polls.rows(&seen(900), &pid_7_since(900)), is(900));
        assert_eq!(polls.rows(&fresh(), &pid_7_since(900)), is(900));
        assert_eq!(polls.rows(&fresh(), &pid_7_since(1_000)), another());
    }

    #[test]
    fn the_search_for_descriptors_goes_on_while_a_pid_is_another_process_s() {
        let mut listings = Listings::default();
        let begin = Instant::now();
        let mut wants = |has_doubtful, seconds| {
            listings.wants_search(has_doubtful, begin + Duration::from_secs(seconds))
        };
        assert!(!wants(false, 0));
        assert!(wants(true, 1));
        assert!(!wants(true, 60));
        assert!(wants(true, 61));
        assert!(!wants(false, 200));
    }
}
