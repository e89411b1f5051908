//! The process that had a listed PID when its driver first listed it.
//!
//! A driver may keep listing the PID of a process that has ended, and the kernel may give that PID
//! to another process. A list has no start times, so a list alone would name the new process. The
//! process that had the PID in the first fresh list is remembered while the fresh lists of that
//! device have the PID.

use super::ProcessesByPid;
use crate::backend::DeviceReadings;
use crate::fd_scan::FileHolders;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::LISTED_BEFORE_START;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The process of a PID when a fresh list first had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PidIdentity {
    Process(ProcessKey),
    /// No process had it, or only a process that started after the list was read.
    NoProcess,
    /// Its process could not be read: it may be any process that is read later.
    Unknown,
}

/// The PIDs of the fresh lists, with their first processes.
#[derive(Debug, Default)]
pub(super) struct ListedPids {
    first: BTreeMap<DeviceId, BTreeMap<u32, PidIdentity>>,
    /// The PIDs that no process has in this poll.
    absent: BTreeSet<u32>,
    /// The open device files of processes, as far as known.
    file_holders: Arc<FileHolders>,
    /// When a file descriptor scan was last requested.
    scan_requested_at: Option<Instant>,
}

/// A scheduled scan ends a minute after its request unless something else needs it. A scan costs
/// one processor a second on a host with 10,000 processes.
const SCAN_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl ListedPids {
    /// Takes the facts of this poll about PIDs.
    pub(super) fn set_process_facts(
        &mut self,
        absent: &BTreeSet<u32>,
        file_holders: &Arc<FileHolders>,
    ) {
        self.absent.clone_from(absent);
        self.file_holders = Arc::clone(file_holders);
    }

    /// Takes a fresh list. `then` are the processes that may have existed when it was read, `now`
    /// are the processes of this poll.
    pub(super) fn add_fresh_list(
        &mut self,
        read: &DeviceReadings,
        then: &ProcessesByPid,
        now: &ProcessesByPid,
    ) {
        let Reading::Value(listed) = &read.processes else {
            return;
        };
        // A partial list does not show that a PID has left it.
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
            let identity = match (seen_by_backend, current) {
                (Some(key), _) => PidIdentity::Process(key),
                (None, Some(key)) if self.has_open(read, key) => PidIdentity::Process(key),
                (None, current) => match known {
                    Some(known) if known != PidIdentity::Unknown => known,
                    Some(_) | None => self.identify(pid, current, now),
                },
            };
            first.insert(pid, identity);
        }
        self.first.insert(read.id.clone(), first);
    }

    fn identify(&self, pid: u32, current: Option<ProcessKey>, now: &ProcessesByPid) -> PidIdentity {
        match current {
            Some(key) => PidIdentity::Process(key),
            // The current process started after the list was read.
            None if now.contains_key(&pid) || self.absent.contains(&pid) => PidIdentity::NoProcess,
            None => PidIdentity::Unknown,
        }
    }

    fn has_open(&self, read: &DeviceReadings, key: ProcessKey) -> bool {
        let open = self.file_holders.processes.get(&key).into_iter().flatten();
        let mut numbers = open.map(|open| open.number);
        numbers.any(|number| {
            let mut nodes = read.nodes.iter();
            nodes.any(|node| !node.shared && node.number == number)
        })
    }

    /// Whether the device's lists have had the PID since before this process had it.
    pub(super) fn belongs_to_another(&self, device: &DeviceId, key: ProcessKey) -> bool {
        let first = self.first.get(device).and_then(|it| it.get(&key.pid));
        match first {
            Some(PidIdentity::Process(first)) => *first != key,
            Some(PidIdentity::NoProcess) => true,
            Some(PidIdentity::Unknown) | None => false,
        }
    }

    /// Whether the device's lists have had the PID since this process had it.
    pub(super) fn still_belongs_to(&self, device: &DeviceId, key: ProcessKey) -> bool {
        let first = self.first.get(device).and_then(|it| it.get(&key.pid));
        first == Some(&PidIdentity::Process(key))
    }

    /// Whether no process has the PID in this poll.
    pub(super) fn is_absent(&self, pid: u32) -> bool {
        self.absent.contains(&pid)
    }

    /// Whether a file descriptor scan is needed now, because a listed PID belongs to another
    /// process: that process may use the GPU, too.
    pub(super) fn needs_fd_scan(&mut self, has_doubtful: bool, at: Instant) -> bool {
        let is_early = |last: Instant| at.saturating_duration_since(last) < SCAN_AGAIN_AFTER;
        if !has_doubtful || self.scan_requested_at.is_some_and(is_early) {
            return false;
        }
        self.scan_requested_at = Some(at);
        true
    }

    /// Forgets devices that are gone.
    pub(super) fn keep_only(&mut self, present: &BTreeSet<&DeviceId>) {
        self.first
            .retain_entries(|device, _| present.contains(device));
    }
}

/// The reading for a listed PID that another process has now.
pub(super) fn listed_before_reuse<T>() -> Reading<T> {
    Reading::Failed(LISTED_BEFORE_START.into())
}

#[cfg(test)]
mod tests {
    use super::super::PollState;
    use super::super::tests::{latest, listed, person};
    use super::*;
    use crate::backend::reader::LatestReadings;
    use crate::backend::{DeviceNode, ProcessReadings};
    use crate::fd_scan::{DeviceNumber, OpenDescriptor};
    use crate::host::users::{SystemNameService, Users};
    use gpukill_proto::model::{InstanceId, Snapshot};
    use gpukill_proto::units::Timestamp;

    type Lists = [(&'static str, LatestReadings); 1];

    /// Polls of a host, one second apart.
    struct PollSequence {
        memory: PollState,
        users: Users,
        now: i64,
    }

    impl PollSequence {
        fn new() -> Self {
            Self {
                memory: PollState::default(),
                users: Users::new(SystemNameService::for_this_host()),
                now: 0,
            }
        }

        fn poll(&mut self, lists: &Lists, processes: &ProcessesByPid) -> Snapshot {
            self.now += 1_000;
            let now = Timestamp(self.now);
            self.memory.assemble(lists, processes, &self.users, now).0
        }

        /// The start time of each row's process, or why it is unknown.
        fn rows(&mut self, lists: &Lists, processes: &ProcessesByPid) -> Vec<Reading<u64>> {
            let rows = self.poll(lists, processes).processes.into_iter();
            rows.map(|row| row.start_ticks).collect()
        }
    }

    fn changed(lists: Lists, change: impl FnOnce(&mut DeviceReadings)) -> Lists {
        let [(name, latest)] = lists;
        let (readings, taken_at) = latest.readings.clone().unwrap();
        let mut readings = readings.as_ref().clone();
        change(&mut readings.devices[0]);
        let readings = Some((Arc::new(readings), taken_at));
        [(name, LatestReadings { readings, ..latest })]
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

    fn pid_7_since(start_ticks: u64) -> ProcessesByPid {
        [person(7, start_ticks)].into()
    }

    fn is(start_ticks: u64) -> Vec<Reading<u64>> {
        vec![Reading::Value(start_ticks)]
    }

    fn another() -> Vec<Reading<u64>> {
        vec![listed_before_reuse()]
    }

    fn no_memory() -> Vec<Reading<u64>> {
        vec![Reading::Failed("no such process on this host".into())]
    }

    #[test]
    fn listed_pid_is_never_a_later_process() {
        let mut polls = PollSequence::new();
        let (first, next, none) = (pid_7_since(100), pid_7_since(900), ProcessesByPid::new());
        assert_eq!(polls.rows(&fresh(), &first), is(100));
        assert_eq!(polls.rows(&fresh(), &none), no_memory());
        for _ in 0..3 {
            let snapshot = polls.poll(&fresh(), &next);
            let row = &snapshot.processes[0];
            assert_eq!(row.pid, 7);
            let why = Some(LISTED_BEFORE_START);
            assert_eq!((row.start_ticks.failure(), row.key()), (why, None));
            assert_eq!((row.owner.failure(), row.name.failure()), (why, why));
            assert!(row.memory.known().is_some());
            assert_eq!(snapshot.devices[0].process_count, Reading::Value(1));
        }
        // Old, failed or partial lists do not show that it has left.
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
    fn pid_listed_without_process_stays_unknown() {
        let next = pid_7_since(900);
        let mut polls = PollSequence::new();
        polls.memory.set_process_facts(&[7].into(), &Arc::default());
        assert_eq!(polls.rows(&fresh(), &ProcessesByPid::new()), no_memory());
        polls
            .memory
            .set_process_facts(&BTreeSet::new(), &Arc::default());
        assert_eq!(polls.rows(&fresh(), &next), another());
        // A process that could not be read then may be the one that is read now.
        let mut polls = PollSequence::new();
        assert_eq!(polls.rows(&fresh(), &ProcessesByPid::new()), no_memory());
        assert_eq!(polls.rows(&fresh(), &next), is(900));
        let third = pid_7_since(1_000);
        assert_eq!(polls.rows(&fresh(), &third), another());
    }

    #[test]
    fn process_started_after_the_list_is_not_in_it() {
        let next = pid_7_since(900);
        let key = next[&7].key;
        let read = |lists: Lists| lists[0].1.readings.as_ref().unwrap().0.devices[0].clone();
        let mut listings = ListedPids::default();
        listings.add_fresh_list(&read(fresh()), &ProcessesByPid::new(), &next);
        listings.add_fresh_list(&read(fresh()), &next, &next);
        assert!(listings.belongs_to_another(&DeviceId("GPU-0".into()), key));
    }

    #[test]
    fn process_with_open_gpu_file_uses_it() {
        let number = |minor| DeviceNumber { major: 195, minor };
        let node = |minor, shared| DeviceNode {
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
        // A file of another GPU, a shared file, a file of another process, and its own file.
        let cases = [
            (4, 900, false),
            (255, 900, false),
            (3, 100, false),
            (3, 900, true),
        ];
        for (minor, start_ticks, uses) in cases {
            let mut polls = PollSequence::new();
            polls.rows(&lists(), &first);
            assert_eq!(polls.rows(&lists(), &next), another());
            let open = OpenDescriptor {
                number: number(minor),
                fd: 3,
                thread: None,
            };
            let pid = 7;
            let file_holders = FileHolders {
                processes: [(ProcessKey { pid, start_ticks }, vec![open])].into(),
                incomplete_reason: None,
                ..FileHolders::default()
            };
            polls
                .memory
                .set_process_facts(&BTreeSet::new(), &Arc::new(file_holders));
            let shown = if uses { is(900) } else { another() };
            assert_eq!(polls.rows(&lists(), &next), shown, "{minor} {start_ticks}");
            // It still does when the scans have stopped.
            polls
                .memory
                .set_process_facts(&BTreeSet::new(), &Arc::default());
            assert_eq!(polls.rows(&lists(), &next), shown, "{minor} {start_ticks}");
        }
    }

    #[test]
    fn instances_share_the_list_of_their_device() {
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
        let mut polls = PollSequence::new();
        let mut both = |instances, second: &[ProcessReadings], processes: &ProcessesByPid| {
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
            polls.rows(&[(name, LatestReadings { readings, ..latest })], processes)
        };
        let all = |rows: [Vec<Reading<u64>>; 3]| rows.concat();
        let on_second = listed().known().unwrap().clone();
        assert_eq!(both([1, 2], &[], &first), [is(100), is(100)].concat());
        // The instances of a GPU are not distinguished: the PID stays listed.
        let rows = both([2, 3], &on_second, &next);
        assert_eq!(rows, all([another(), another(), is(900)]));
    }

    #[test]
    fn backend_start_time_needs_no_earlier_list() {
        let lists = |start_ticks| {
            changed(fresh(), |read| {
                let mut all = listed().known().unwrap().clone();
                all[0].start_ticks = Some(start_ticks);
                read.processes = Reading::Value(all);
            })
        };
        let mut polls = PollSequence::new();
        assert_eq!(polls.rows(&lists(100), &pid_7_since(100)), is(100));
        assert_eq!(polls.rows(&lists(900), &pid_7_since(900)), is(900));
        assert_eq!(polls.rows(&fresh(), &pid_7_since(900)), is(900));
        assert_eq!(polls.rows(&fresh(), &pid_7_since(1_000)), another());
    }

    #[test]
    fn scan_continues_while_a_pid_is_reused() {
        let mut listings = ListedPids::default();
        let start = Instant::now();
        let mut wants = |has_doubtful, seconds| {
            listings.needs_fd_scan(has_doubtful, start + Duration::from_secs(seconds))
        };
        assert!(!wants(false, 0));
        assert!(wants(true, 1));
        assert!(!wants(true, 60));
        assert!(wants(true, 61));
        assert!(!wants(false, 200));
    }
}
