//! Combines readings and process metadata into a snapshot.

mod last_known;
mod listing;
mod rows;

use self::last_known::LastProcesses;
use self::listing::{ListedPids, listed_before_reuse};
use super::device::{DeviceHistory, build_device};
use super::device_index::DeviceIndices;
use super::gone_devices::GoneDevices;
use crate::backend::reader::LatestReadings;
use crate::backend::{BackendError, BackendReadings, DeviceReadings, LossCause};
use crate::fault::PartFault;
use crate::fd_scan::FileHolders;
use crate::host::process::ProcessMetadata;
use crate::host::users::Users;
use crate::store::{DeviceProcess, PastUse};
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, RetainEntries as _, SortIndirect as _};
use gpukill_proto::model::{
    BackendReport, BackendState, DeviceId, GpuEvent, Loss, LossKind, ProcessKey, Snapshot,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The processes that have the listed PIDs now. A PID that no process has is absent.
pub(super) type ProcessesByPid = BTreeMap<u32, ProcessMetadata>;

/// The state that one poll keeps for the next.
#[derive(Debug, Default)]
pub(super) struct PollState {
    /// When each process was observed on each device.
    use_times: BTreeMap<(DeviceId, ProcessKey), UseTimes>,
    /// When each listed PID without a process was first observed.
    unknown_pids: BTreeMap<(DeviceId, u32), Timestamp>,
    /// The process of each listed PID when the list was fresh: an old list must not be applied to a
    /// later process with the same PID.
    listed: BTreeMap<DeviceId, BTreeMap<u32, ProcessKey>>,
    /// The process that had each listed PID first.
    listed_pids: ListedPids,
    /// The process that had each listed PID last.
    last_processes: LastProcesses,
    /// How and since when each device is lost.
    lost_since: BTreeMap<DeviceId, (LossKind, Timestamp)>,
    host_memory: Option<Bytes>,
    indices: DeviceIndices,
    gone_devices: GoneDevices,
    /// The time of the first poll.
    started_at: Option<Timestamp>,
    /// Whether the store is asked for earlier observations.
    queries_store: bool,
    /// The guard's own record of first observations, which works when the store does not.
    guard_first_seen: BTreeMap<DeviceProcess, Timestamp>,
    last_xid: BTreeMap<DeviceId, GpuEvent>,
    backends: BTreeMap<&'static str, (BackendState, Timestamp)>,
}

/// When a process was first observed on a device, and when it last used it.
#[derive(Debug, Clone, Copy)]
struct UseTimes {
    first: Timestamp,
    last_active: Option<Timestamp>,
    /// Whether the store was asked for earlier observations.
    is_queried: bool,
}

/// Within this time after the first poll, `first_seen` stays unknown until the store has answered.
/// A store that has not answered by then is broken or very slow.
const RECALL_TIMEOUT: Duration = Duration::from_secs(10);

impl PollState {
    /// A state for a host with this much memory. `remembered` is when an earlier daemon first
    /// observed processes on their devices.
    pub(super) fn new(
        host_memory: Option<Bytes>,
        indices: DeviceIndices,
        remembered: BTreeMap<DeviceProcess, Timestamp>,
    ) -> Self {
        Self {
            host_memory,
            indices,
            queries_store: true,
            guard_first_seen: remembered,
            ..Self::default()
        }
    }

    /// Takes the facts of this poll that the lists do not have: the PIDs without a process, and the
    /// open device files.
    pub(super) fn set_process_facts(
        &mut self,
        absent: &BTreeSet<u32>,
        file_holders: &Arc<FileHolders>,
    ) {
        self.listed_pids.set_process_facts(absent, file_holders);
    }

    /// Whether a listed PID belongs to another process by now, so that all file descriptors must be
    /// scanned.
    pub(super) fn needs_fd_scan(&mut self, snapshot: &Snapshot, at: Instant) -> bool {
        let mut rows = snapshot.processes.iter();
        let has_doubtful = rows.any(|row| row.start_ticks == listed_before_reuse());
        self.listed_pids.needs_fd_scan(has_doubtful, at)
    }

    /// Builds a snapshot from the backends' readings, and the events of devices that went or came
    /// back. The caller fills in poll number, host and faults.
    pub(super) fn assemble(
        &mut self,
        latest: &[(&'static str, LatestReadings)],
        processes: &ProcessesByPid,
        users: &Users,
        now: Timestamp,
    ) -> (Snapshot, Vec<GpuEvent>) {
        let mut snapshot = Snapshot {
            taken_at: now,
            ..Snapshot::default()
        };
        let start = *self.started_at.get_or_insert(now);
        if now.since(start) >= RECALL_TIMEOUT {
            self.guard_first_seen = BTreeMap::new();
        }
        let indices = self.indices(latest);
        for (name, latest) in latest {
            snapshot
                .backends
                .push(self.backend_report(name, latest, now));
            let Some((readings, taken_at)) = &latest.readings else {
                continue;
            };
            self.record_xids(&latest.events);
            let present = processes_at(processes, *taken_at);
            for read in &readings.devices {
                let is_old = !latest.is_fresh() || read.stale_since.is_some();
                let read_at = read.stale_since.unwrap_or(*taken_at);
                // Readings before a failure are old at once, readings before a late answer after a
                // second.
                let has_failed = latest.failure.is_some() || read.stale_since.is_some();
                let seconds = now.since(read_at).as_secs().max(u64::from(has_failed));
                let age = is_old.then(|| u32::try_from(seconds).unwrap_or(u32::MAX));
                if age.is_none() {
                    self.listed_pids.add_fresh_list(read, &present, processes);
                    self.last_processes.keep_listed(&read.id, &self.listed_pids);
                }
                let rows = match read.stale_since {
                    Some(then) => {
                        self.process_rows(read, age, &processes_at(processes, then), users, now)
                    }
                    None => self.process_rows(read, age, &present, users, now),
                };
                let index = indices.get(&read.id).copied().unwrap_or(read.index);
                let remembered = self.device_history(read, now);
                snapshot
                    .devices
                    .push(build_device(read, index, &rows, age, remembered));
                snapshot.processes.extend(rows);
            }
        }
        let bus = self.indices.bus();
        let events = self
            .gone_devices
            .update(latest, bus, &mut snapshot.devices, now);
        snapshot.devices.sort_indirect_by_key(|device| device.index);
        self.forget_ended(latest, &snapshot);
        (snapshot, events)
    }

    /// The faults of devices that are gone.
    pub(super) fn faults(&self) -> Vec<PartFault> {
        self.gone_devices.faults()
    }

    /// Drops the rows of these devices, if they are gone.
    pub(super) fn forget_devices(&mut self, devices: &[DeviceId]) {
        self.gone_devices.forget(devices);
    }

    /// Whether an earlier daemon may have observed the process and the store may still report it.
    fn may_predate_daemon(&self, started_at: Option<Timestamp>, now: Timestamp) -> bool {
        let is_early =
            |start| now.since(start) < RECALL_TIMEOUT && started_at.is_none_or(|at| at < start);
        self.queries_store && self.started_at.is_some_and(is_early)
    }

    /// The processes that the store was not asked about.
    pub(super) fn unqueried_rows(&self) -> impl Iterator<Item = DeviceProcess> {
        let use_times = self.use_times.iter();
        use_times
            .filter(|(_, use_times)| !use_times.is_queried)
            .map(|(on, _)| on.clone())
    }

    /// Takes the store's answer about these processes.
    pub(super) fn apply_past_use(
        &mut self,
        queried: &[DeviceProcess],
        known: &BTreeMap<DeviceProcess, PastUse>,
    ) {
        for on in queried {
            let Some(use_times) = self.use_times.get_mut(on) else {
                continue;
            };
            use_times.is_queried = true;
            if let Some(past) = known.get(on) {
                use_times.first = use_times.first.min(past.first_seen);
                use_times.last_active = use_times.last_active.max(past.last_active);
            }
        }
    }

    fn indices(&mut self, latest: &[(&'static str, LatestReadings)]) -> BTreeMap<DeviceId, u32> {
        let have_all = latest
            .iter()
            .all(|(_, latest)| latest.readings.is_some() || latest.failure.is_some());
        let devices = latest.iter().flat_map(|(name, latest)| {
            let readings = latest.readings.iter();
            readings.flat_map(|(readings, _)| readings.devices.iter().map(|it| (*name, it)))
        });
        self.indices.assign(devices, have_all)
    }

    fn backend_report(
        &mut self,
        name: &'static str,
        latest: &LatestReadings,
        now: Timestamp,
    ) -> BackendReport {
        let readings = latest.readings.as_ref().map(|(readings, _)| readings);
        let state = match (&latest.failure, readings) {
            (Some(BackendError::Failed(code, why)), _) => BackendState::Failed(*code, why.clone()),
            (Some(BackendError::Quiesced(until)), _) => BackendState::Quiesced(*until),
            (None, Some(readings)) => readings.state.clone(),
            (None, None) => BackendState::Starting,
        };
        let known = self
            .backends
            .get(name)
            .filter(|(before, _)| *before == state);
        let since = known.map_or(now, |(_, since)| *since);
        self.backends.insert(name, (state.clone(), since));
        let text = |pick: fn(&BackendReadings) -> &Reading<String>| {
            readings.map_or(Reading::Unsupported, |readings| pick(readings).clone())
        };
        BackendReport {
            name: name.to_owned(),
            state,
            since,
            devices: readings.map_or(0, |readings| {
                u32::try_from(readings.devices.len()).unwrap_or(u32::MAX)
            }),
            driver: text(|readings| &readings.driver),
            cuda: text(|readings| &readings.cuda),
            poll_cost_us: readings.map_or(0, |readings| readings.cost_us),
        }
    }

    /// The facts that earlier polls know of a device.
    fn device_history(&mut self, read: &DeviceReadings, now: Timestamp) -> DeviceHistory {
        let lost = read.lost.as_ref().map(|cause| {
            let LossCause { kind, why } = cause.clone();
            let known = self.lost_since.entry(read.id.clone());
            let known = known.or_insert((kind, now));
            // Each kind of loss has its own start.
            if known.0 != kind {
                *known = (kind, now);
            }
            let since = known.1;
            let reason = why;
            Loss {
                since,
                reason,
                kind,
            }
        });
        if lost.is_none() {
            self.lost_since.remove(&read.id);
        }
        DeviceHistory {
            host_memory: self.host_memory,
            loss: lost,
            last_xid: self.last_xid.get(&read.id).cloned(),
        }
    }

    /// Keeps the last XID of each device.
    fn record_xids(&mut self, events: &[GpuEvent]) {
        for event in events {
            if let (Some(id), Some(_)) = (&event.device, event.kind.xid()) {
                self.last_xid.insert(id.clone(), event.clone());
            }
        }
    }

    /// Only a fresh list shows that a process has left; a missing list shows nothing.
    fn forget_ended(&mut self, latest: &[(&'static str, LatestReadings)], snapshot: &Snapshot) {
        let reported: BTreeSet<&DeviceId> = latest
            .iter()
            .filter(|(_, latest)| latest.is_fresh())
            .filter_map(|(_, latest)| latest.readings.as_ref())
            .flat_map(|(readings, _)| &readings.devices)
            .filter(|device| device.stale_since.is_none() && device.processes.known().is_some())
            .map(|device| &device.id)
            .into_set();
        let present_devices: BTreeSet<&DeviceId> =
            snapshot.devices.iter().map(|device| &device.id).into_set();
        let present: BTreeSet<(DeviceId, ProcessKey)> = snapshot
            .processes
            .iter()
            .filter_map(|row| Some((row.device.clone(), row.last_known_key()?)))
            .into_set();
        let may_be_present =
            |device: &DeviceId| present_devices.contains(device) && !reported.contains(device);
        self.use_times
            .retain_entries(|row, _| present.contains(row) || may_be_present(&row.0));
        let unowned_rows: BTreeSet<(DeviceId, u32)> = snapshot
            .processes
            .iter()
            .filter(|row| row.last_known_key().is_none())
            .map(|row| (row.device.clone(), row.pid))
            .into_set();
        self.unknown_pids
            .retain_entries(|row, _| unowned_rows.contains(row) || may_be_present(&row.0));
        self.listed
            .retain_entries(|device, _| present_devices.contains(device));
        self.listed_pids.keep_only(&present_devices);
        self.last_processes.keep_only(&present_devices);
        self.lost_since
            .retain_entries(|device, _| present_devices.contains(device));
        self.last_xid
            .retain_entries(|device, _| present_devices.contains(device));
    }
}

/// The processes that may have existed at this moment.
fn processes_at(processes: &ProcessesByPid, moment: Timestamp) -> ProcessesByPid {
    let present = processes
        .iter()
        .filter(|(_, process)| process.may_have_existed_at(moment));
    present
        .map(|(pid, process)| (*pid, process.clone()))
        .into_map()
}

/// A reading from a list that is this many seconds old; `None` for a fresh list. Below one second
/// it stays a value: with faster polls an answer is often late on a busy host.
pub(super) fn aged<T: Clone>(reading: &Reading<T>, age: Option<u32>) -> Reading<T> {
    match age {
        Some(seconds @ 1..) => reading.clone().aged(seconds),
        Some(0) | None => reading.clone(),
    }
}

pub(super) fn listed_pids(latest: &[(&'static str, LatestReadings)]) -> impl Iterator<Item = u32> {
    let readings = latest
        .iter()
        .filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    devices
        .filter_map(|device| device.processes.known())
        .flatten()
        .map(|process| process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{MemoryReadings, ProcessReadings, Utilization};
    use crate::host::users::SystemNameService;
    use gpukill_proto::model::{FaultCode, GpuUse, Vendor};
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    pub(super) fn person(pid: u32, start_ticks: u64) -> (u32, ProcessMetadata) {
        let identity = ProcessMetadata::with_name(ProcessKey { pid, start_ticks }, "python");
        (pid, identity)
    }

    /// One GPU with 60 GiB used, all of it by process 7.
    pub(super) fn latest(
        processes: Reading<Vec<ProcessReadings>>,
        is_fresh: bool,
    ) -> [(&'static str, LatestReadings); 1] {
        let id = DeviceId("GPU-0".into());
        let device = DeviceReadings {
            memory: MemoryReadings {
                total: Reading::Value(Bytes(80 * GIB)),
                used: Reading::Value(Bytes(60 * GIB)),
                reserved: Reading::Value(Bytes(0)),
                unified: false,
            },
            processes,
            ..DeviceReadings::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported)
        };
        let readings = BackendReadings {
            devices: vec![device],
            ..BackendReadings::without_devices(BackendState::Ready)
        };
        let latest = LatestReadings {
            readings: Some((Arc::new(readings), Timestamp(0))),
            failure: None,
            on_time: is_fresh,
            is_recent: false,
            slowest_answer: None,
            events: Vec::new(),
        };
        [("nvidia", latest)]
    }

    pub(super) fn listed() -> Reading<Vec<ProcessReadings>> {
        Reading::Value(vec![ProcessReadings {
            pid: 7,
            start_ticks: None,
            instance: None,
            used_for: GpuUse::default(),
            memory: Reading::Value(Bytes(60 * GIB)),
            utilization: Utilization::unknown(&Reading::Unsupported),
        }])
    }

    #[test]
    fn readings_under_a_second_stay_values() {
        let (mut memory, users) = (
            PollState::default(),
            Users::new(SystemNameService::for_this_host()),
        );
        let alice: ProcessesByPid = [person(7, 100)].into();
        let mut used = |latest: &[(&'static str, LatestReadings)], now| {
            let shown = memory.assemble(latest, &alice, &users, Timestamp(now)).0;
            (
                shown.devices[0].memory_used.clone(),
                shown.processes[0].memory.clone(),
            )
        };
        let all = Bytes(60 * GIB);
        let (value, old) = (Reading::Value(all), Reading::Stale(all, 1));
        let late = latest(listed(), false);
        assert_eq!(used(&latest(listed(), true), 1).1, value);
        assert_eq!(used(&late, 999), (value.clone(), value));
        assert_eq!(used(&late, 1_000), (old.clone(), old.clone()));
        let [(name, last)] = latest(listed(), false);
        let failure = Some(BackendError::Failed(
            FaultCode::SensorFailed,
            "it ended".into(),
        ));
        let failed = [(name, LatestReadings { failure, ..last })];
        assert_eq!(used(&failed, 2), (old.clone(), old));
    }

    #[test]
    fn old_list_never_names_a_reused_pid() {
        let (mut memory, users) = (
            PollState::default(),
            Users::new(SystemNameService::for_this_host()),
        );
        let alice: ProcessesByPid = [person(7, 100)].into();
        let fresh = memory
            .assemble(&latest(listed(), true), &alice, &users, Timestamp(1))
            .0;
        assert_eq!(fresh.processes.len(), 1);
        let old = memory
            .assemble(&latest(listed(), false), &alice, &users, Timestamp(2))
            .0;
        assert_eq!(old.processes.len(), 1);
        for others in [[person(7, 900)].into(), ProcessesByPid::new()] {
            let old = memory
                .assemble(&latest(listed(), false), &others, &users, Timestamp(3))
                .0;
            assert_eq!(old.processes, []);
            // Its memory was attributed when it was read, and still is.
            assert_eq!(
                old.devices[0].memory_unattributed.last_known(),
                Some(&Bytes(0))
            );
        }
    }

    /// The same for a card that has not answered since the first second.
    fn silent(processes: Reading<Vec<ProcessReadings>>) -> [(&'static str, LatestReadings); 1] {
        let [(name, latest)] = latest(processes, true);
        let mut readings = latest.readings.clone().unwrap().0.as_ref().clone();
        readings.devices[0].stale_since = Some(Timestamp(1_000));
        let readings = Some((Arc::new(readings), Timestamp(9_000)));
        [(name, LatestReadings { readings, ..latest })]
    }

    #[test]
    fn silent_card_keeps_its_own_age() {
        let (mut memory, users) = (
            PollState::default(),
            Users::new(SystemNameService::for_this_host()),
        );
        let alice: ProcessesByPid = [person(7, 100)].into();
        let fresh = memory
            .assemble(&latest(listed(), true), &alice, &users, Timestamp(1_000))
            .0;
        let old = memory
            .assemble(&silent(listed()), &alice, &users, Timestamp(9_000))
            .0;
        let used = Bytes(60 * GIB);
        let rows = |snapshot: &Snapshot| -> Vec<_> {
            let rows = snapshot.processes.iter();
            rows.map(|row| (row.pid, row.first_seen.clone(), row.memory.clone()))
                .collect()
        };
        let first = Reading::Value(Timestamp(1_000));
        assert_eq!(rows(&fresh), [(7, first.clone(), Reading::Value(used))]);
        assert_eq!(rows(&old), [(7, first.clone(), Reading::Stale(used, 8))]);
        let device = &old.devices[0];
        assert_eq!(
            (device.memory_used.clone(), device.process_count.clone()),
            (Reading::Stale(used, 8), Reading::Stale(1, 8))
        );
        // A process that reuses the PID is not named, and the earlier one is not forgotten.
        let others: ProcessesByPid = [person(7, 900)].into();
        let taken = memory
            .assemble(&silent(listed()), &others, &users, Timestamp(10_000))
            .0;
        assert_eq!(taken.processes, []);
        let back = memory
            .assemble(&latest(listed(), true), &alice, &users, Timestamp(11_000))
            .0;
        assert_eq!(rows(&back), [(7, first, Reading::Value(used))]);
    }

    #[test]
    fn unknown_pid_is_as_old_as_its_listing() {
        let (mut memory, users) = (
            PollState::default(),
            Users::new(SystemNameService::for_this_host()),
        );
        let mut first_seen = |list, processes: &ProcessesByPid, now| {
            let snapshot = memory
                .assemble(&latest(list, true), processes, &users, Timestamp(now))
                .0;
            snapshot
                .processes
                .first()
                .and_then(|row| row.first_seen.known().copied())
        };
        let no_processes = ProcessesByPid::new();
        assert_eq!(first_seen(listed(), &no_processes, 1), Some(Timestamp(1)));
        assert_eq!(first_seen(listed(), &no_processes, 2), Some(Timestamp(1)));
        assert_eq!(
            first_seen(Reading::Failed("999".into()), &no_processes, 3),
            None
        );
        assert_eq!(first_seen(listed(), &no_processes, 4), Some(Timestamp(1)));
        // A process has it, and after that none again.
        let alice: ProcessesByPid = [person(7, 100)].into();
        assert_eq!(first_seen(listed(), &alice, 5), Some(Timestamp(5)));
        assert_eq!(first_seen(listed(), &no_processes, 6), Some(Timestamp(6)));
        assert_eq!(
            first_seen(Reading::Value(Vec::new()), &no_processes, 7),
            None
        );
        assert_eq!(first_seen(listed(), &no_processes, 8), Some(Timestamp(8)));
    }

    #[test]
    fn reused_pid_is_not_the_observed_process() {
        let rows_of = |start_ticks| {
            let listed = listed().map(|mut all| {
                all[0].start_ticks = start_ticks;
                all
            });
            let (mut memory, users) = (
                PollState::default(),
                Users::new(SystemNameService::for_this_host()),
            );
            let now: ProcessesByPid = [person(7, 900)].into();
            let snapshot = memory
                .assemble(&latest(listed, true), &now, &users, Timestamp(1))
                .0;
            let rows = snapshot.processes.into_iter();
            rows.map(|row| (row.pid, row.start_ticks)).collect()
        };
        let itself = vec![(7, Reading::Value(900))];
        let cases: [(_, Vec<_>); 3] = [
            (Some(900), itself.clone()),
            (Some(100), vec![]),
            (None, itself),
        ];
        for (start_ticks, expected) in cases {
            let found: Vec<(u32, Reading<u64>)> = rows_of(start_ticks);
            assert_eq!(found, expected, "{start_ticks:?}");
        }
    }

    #[test]
    fn failed_list_keeps_first_seen() {
        let (mut memory, users) = (
            PollState::default(),
            Users::new(SystemNameService::for_this_host()),
        );
        let processes: ProcessesByPid = [person(7, 100)].into();
        let mut first_seen = |list, now| {
            let snapshot = memory
                .assemble(&latest(list, true), &processes, &users, Timestamp(now))
                .0;
            snapshot
                .processes
                .first()
                .and_then(|row| row.first_seen.known().copied())
        };
        assert_eq!(first_seen(listed(), 1), Some(Timestamp(1)));
        assert_eq!(first_seen(Reading::Failed("999".into()), 2), None);
        assert_eq!(first_seen(listed(), 3), Some(Timestamp(1)));
        // A fresh list without it shows that it has left.
        assert_eq!(first_seen(Reading::Value(Vec::new()), 4), None);
        assert_eq!(first_seen(listed(), 5), Some(Timestamp(5)));
    }
}
