//! One poll: reads the backends and the process table, and builds a snapshot of both.

mod assemble;
mod device;
mod device_holders;
mod device_index;
mod fault_tracker;
mod faults;
mod gone_devices;
mod past_use;
mod pci_slots;
pub(crate) mod poller;
pub(crate) mod process_inspector;
mod recently_ended;
pub(crate) mod sampler;
mod user_groups;

use crate::backend::Roots;
use crate::backend::reader::{BackendReader, LatestReadings};
use crate::fault::PartFault;
use crate::fd_scan::{FdScanHandle, FileHolders};
use crate::host;
use crate::host::process::ProcessReader;
use crate::host::process_metadata::ProcessMetadata;
use crate::host::sockets::SocketWatcher;
use crate::host::users::Users;
use crate::store::{GroupNames, JobAccounts};
use assemble::{PollState, ProcessesByPid};
use device_holders::HolderContext;
use device_index::DeviceIndices;
use fault_tracker::{AlertTracker, FaultTracker};
pub(crate) use faults::device_faults;
use gpukill_policy::alert::Thresholds;
use gpukill_policy::memory::SharedMemory;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::holders::DeviceHolders;
use gpukill_proto::model::{DeviceId, FaultCode, GpuEvent, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::status::DeviceEnergy;
use gpukill_proto::units::Timestamp;
pub(crate) use past_use::PastUseQuery;
use pci_slots::PciBus;
use process_inspector::LastReadings;
use recently_ended::RecentlyEnded;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use user_groups::UserGroups;

/// The sources that a poll reads, and the state it keeps for the next poll.
pub(crate) struct SnapshotBuilder {
    readers: Vec<BackendReader>,
    fd_scan: FdScanHandle,
    procfs: PathBuf,
    processes: ProcessReader,
    users: Users,
    connections: Arc<SocketWatcher>,
    user_groups: UserGroups,
    state: PollState,
    past_use: PastUseQuery,
    recently_ended: RecentlyEnded,
    held: Arc<Vec<DeviceHolders>>,
    held_at: Option<Timestamp>,
    last_readings: LastReadings,
    scan_trigger: ScanTrigger,
    /// The last snapshot; an empty one at first.
    last_snapshot: Arc<Snapshot>,
    faults: FaultTracker,
    alerts: AlertTracker,
    poll_number: u64,
}

/// The sources of facts about processes and their users.
pub(crate) struct PollSources {
    pub(crate) fd_scan: FdScanHandle,
    pub(crate) processes: ProcessReader,
    pub(crate) users: Users,
    pub(crate) connections: Arc<SocketWatcher>,
    /// Receives the readings of each poll.
    pub(crate) last_readings: LastReadings,
}

pub(crate) struct PollResult {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The processes that share a device.
    pub(crate) sharing: Arc<SharedMemory>,
    /// The holders of each device, as of the last request for them.
    pub(crate) holders: Arc<Vec<DeviceHolders>>,
    /// The time of the snapshot that the holders belong to.
    pub(crate) holders_at: Option<Timestamp>,
    /// The events of devices since the previous poll, oldest first.
    pub(crate) events: Vec<GpuEvent>,
    /// The group names of users that own processes here.
    pub(crate) groups: Arc<GroupNames>,
    /// The Slurm accounts of jobs, as their processes report them.
    pub(crate) accounts: Arc<JobAccounts>,
    /// How long the slowest answer takes, of backends that answer slowly.
    pub(crate) slowest: Option<Duration>,
    /// Whether a backend did not answer in time.
    pub(crate) is_late: bool,
    /// The energy that devices have drawn, as far as that was just read.
    pub(crate) energy: Arc<Vec<DeviceEnergy>>,
}

/// How long a poll waits for names, command lines and container files that it has just requested,
/// and then for sockets. Usually they arrive within this time, otherwise before the next poll.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(20);

impl SnapshotBuilder {
    pub(crate) fn new(
        readers: Vec<BackendReader>,
        roots: Roots,
        sources: PollSources,
        mut history: PastUseQuery,
        before: Arc<Snapshot>,
    ) -> Self {
        let Roots { sysfs, procfs, .. } = roots;
        let PollSources {
            fd_scan: holders,
            processes,
            users,
            connections,
            last_readings,
        } = sources;
        let names: Vec<&str> = readers.iter().map(BackendReader::name).collect();
        let indices = DeviceIndices::on_bus(PciBus::new(&sysfs, &names));
        let remembered = std::mem::take(&mut history.guard_first_seen);
        Self {
            readers,
            fd_scan: holders,
            processes,
            users,
            connections,
            user_groups: UserGroups::default(),
            state: PollState::new(host::total_memory(&procfs), indices, remembered),
            past_use: history,
            procfs,
            recently_ended: RecentlyEnded::default(),
            held: Arc::default(),
            held_at: None,
            last_readings,
            scan_trigger: ScanTrigger::default(),
            last_snapshot: before,
            faults: FaultTracker::default(),
            alerts: AlertTracker::default(),
            poll_number: 0,
        }
    }

    /// Polls once. `timeout` is how long it waits for a slow backend before it uses that backend's
    /// last readings. `held_is_wanted`: a client asks for the holders of the devices.
    pub(crate) fn poll(
        &mut self,
        timeout: Duration,
        now: Timestamp,
        faults: Vec<PartFault>,
        thresholds: &Thresholds,
        held_is_wanted: bool,
    ) -> PollResult {
        let latest = self.read_backends(timeout);
        let file_holders = self.fd_scan.file_holders();
        let processes = self.identify_processes(&latest, &file_holders, now);
        let is_gone = |key: &&ProcessKey| processes.get(&key.pid).is_none_or(|it| it.key != **key);
        self.fd_scan
            .forget(file_holders.processes.keys().filter(is_gone).copied());
        if let Some((queried, known)) = self.past_use.take_answer() {
            self.state.apply_past_use(&queried, &known);
        }
        self.state
            .set_process_facts(self.processes.absent_pids(), &file_holders);
        let (mut snapshot, gone_events) =
            self.state.assemble(&latest, &processes, &self.users, now);
        self.past_use.query(self.state.unqueried_rows());
        self.poll_number += 1;
        snapshot.polls = self.poll_number;
        snapshot.host.clone_from(&self.last_snapshot.host);
        self.fill_network_use(&mut snapshot, &processes);
        self.recently_ended
            .update(&self.last_snapshot, &snapshot, now);
        let at = Instant::now();
        let needs_scan = self.state.needs_fd_scan(&snapshot, at);
        if self.scan_trigger.is_due(&snapshot, at) || needs_scan {
            self.fd_scan.request_scan();
        }
        // When there are too many faults, the last are dropped; the daemon's own come first.
        let names = self.users.fault().map(|fault| fault.with_part("names"));
        let own = faults.into_iter().chain(names);
        let own = own.chain(self.processes.faults());
        let search = self.fd_scan.fault();
        let own = own.chain(search.map(|fault| fault.with_part("processes")));
        let short_lived = faults::describe_short_lived(&latest, &file_holders, &self.users);
        let devices = snapshot.devices.iter();
        let own = own.chain(devices.filter_map(|device| {
            let what = short_lived.get(&device.id)?.clone();
            let part = format!("GPU {}", device.index);
            Some(PartFault::new(part, FaultCode::ShortLivedHolders, what))
        }));
        let gone = self.state.faults();
        let faults = own
            .chain(faults::detect_faults(&latest, &snapshot))
            .chain(gone);
        let faults = faults.collect();
        snapshot.faults = self.faults.update(faults, now);
        faults::align_loss_times(&mut snapshot);
        let alerts = self.alerts.update(thresholds, &snapshot);
        snapshot.faults.extend(alerts);
        let readings = latest.iter();
        let readings: Vec<_> = readings
            .filter_map(|(_, latest)| Some(Arc::clone(&latest.readings.as_ref()?.0)))
            .collect();
        let context = HolderContext {
            readings: &readings,
            snapshot: &snapshot,
            file_holders: &file_holders,
            short_lived: &short_lived,
            processes: &processes,
            users: &self.users,
            procfs: &self.procfs,
        };
        if held_is_wanted {
            let held = context.device_holders(
                &self.recently_ended.ended,
                &self.recently_ended.busy_without_holder,
            );
            self.held = Arc::new(held);
            self.held_at = Some(snapshot.taken_at);
        }
        self.last_readings.replace(readings);
        self.last_snapshot = Arc::new(snapshot);
        let sharing = Arc::new(collect_sharing(&latest));
        let accounts = processes.values().filter_map(account);
        let accounts = Arc::new(accounts.into_map());
        let slowest = latest
            .iter()
            .filter_map(|(_, latest)| latest.slowest_answer)
            .max();
        let is_late = latest.iter().any(|(_, latest)| latest.is_late());
        let energy = Arc::new(collect_energy(&latest));
        let events = latest.into_iter().flat_map(|(_, latest)| latest.events);
        PollResult {
            events: events.chain(gone_events).collect(),
            sharing,
            groups: self.user_groups.update(&self.last_snapshot, &self.users),
            accounts,
            slowest,
            is_late,
            energy,
            holders: Arc::clone(&self.held),
            holders_at: self.held_at,
            snapshot: Arc::clone(&self.last_snapshot),
        }
    }

    /// Drops the rows of these devices, where they are gone.
    pub(crate) fn forget_devices(&mut self, devices: &[DeviceId]) {
        self.state.forget_devices(devices);
    }

    /// Fills in the network use of each process's job, as of the last scan of its sockets.
    fn fill_network_use(&self, snapshot: &mut Snapshot, processes: &ProcessesByPid) {
        let keys = snapshot.processes.iter().filter_map(GpuProcess::key);
        let known = keys.filter_map(|key| {
            let identity = processes.get(&key.pid).filter(|it| it.key == key)?;
            Some((key, identity.attribution(&self.users)))
        });
        self.connections.watch(known.into_map());
        self.connections.settle(Instant::now() + SETTLE_TIMEOUT);
        for process in &mut snapshot.processes {
            if let Some(key) = process.key() {
                let network = self.connections.network_use(key);
                process.network_role = network.role;
                process.connections = network.clients;
            }
        }
    }

    /// Reads all backends at once, each on its own thread.
    fn read_backends(&self, timeout: Duration) -> Vec<(&'static str, LatestReadings)> {
        let deadline = Instant::now() + timeout;
        for reader in &self.readers {
            reader.request();
        }
        self.readers
            .iter()
            .map(|reader| (reader.name(), reader.latest(deadline)))
            .collect()
    }

    /// Reads the metadata of the listed processes and of the file holders. Requests that may hang
    /// are sent together, so that a poll waits for them once.
    fn identify_processes(
        &mut self,
        latest: &[(&'static str, LatestReadings)],
        file_holders: &FileHolders,
        now: Timestamp,
    ) -> ProcessesByPid {
        let holding = file_holders.processes.keys().map(|key| key.pid);
        let pids: BTreeSet<u32> = assemble::listed_pids(latest).chain(holding).into_set();
        let mut processes: ProcessesByPid = self.processes.identify(&pids, now, &self.users);
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        self.processes.settle(&mut processes, &self.users, deadline);
        processes
    }
}

fn account(person: &ProcessMetadata) -> Option<(ProcessKey, String)> {
    Some((person.key, person.account()?.clone()))
}

/// The energy that devices have drawn. An old value is left out.
fn collect_energy(latest: &[(&'static str, LatestReadings)]) -> Vec<DeviceEnergy> {
    let fresh = latest.iter().filter(|(_, latest)| latest.is_fresh());
    let readings = fresh.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    let counting = devices.filter(|device| device.stale_since.is_none());
    let energy = counting.filter_map(|device| {
        Some(DeviceEnergy {
            device: device.id.clone(),
            drawn: device.energy?,
        })
    });
    energy.collect()
}

/// The processes that share a device.
fn collect_sharing(latest: &[(&'static str, LatestReadings)]) -> SharedMemory {
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    let shared = devices.flat_map(|device| {
        let shared = device.sharing.iter();
        shared.map(|(key, sharing)| ((device.id.clone(), *key), *sharing))
    });
    shared.into_map()
}

/// Decides when unattributed memory justifies a file descriptor scan.
#[derive(Debug, Default)]
struct ScanTrigger {
    /// The unattributed memory of all devices at the last scan.
    baseline: u64,
    scanned_at: Option<Instant>,
}

impl ScanTrigger {
    /// The shortest time between two scans: a scan of all processes costs seconds of one processor.
    const MIN_INTERVAL: Duration = Duration::from_secs(30);

    /// Whether more memory is unattributed than at the last scan.
    fn is_due(&mut self, snapshot: &Snapshot, at: Instant) -> bool {
        let remainders = snapshot.devices.iter();
        let now: u64 = remainders
            .filter_map(|device| device.memory_unattributed.known())
            .map(|bytes| bytes.0)
            .fold(0, u64::saturating_add);
        let since_the_last = |last| at.saturating_duration_since(last);
        let is_early = self
            .scanned_at
            .is_some_and(|last| since_the_last(last) < Self::MIN_INTERVAL);
        if now < self.baseline {
            self.baseline = now;
        }
        // A remainder is above the noise; an increase of one may be noise.
        let rises = now > self.baseline.saturating_add(self.baseline / 10);
        if !rises || is_early {
            return false;
        }
        self.baseline = now;
        self.scanned_at = Some(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendReadings, DeviceReadings};
    use gpukill_proto::model::{BackendState, Device, DeviceId, Vendor};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::{Bytes, Millijoules};

    /// Two devices with these amounts of unattributed memory.
    fn unexplained(remainders: [Reading<Bytes>; 2]) -> Snapshot {
        let device = |memory_unattributed| Device {
            memory_unattributed,
            ..Device::unknown(
                DeviceId("GPU-0".into()),
                0,
                Vendor::Nvidia,
                &Reading::Unsupported,
            )
        };
        Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            polls: 1,
            devices: remainders.map(device).into(),
            processes: Vec::new(),
            backends: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn energy_is_only_that_which_was_just_read() {
        let device = |id: &str, energy| DeviceReadings {
            energy,
            ..DeviceReadings::unknown(
                DeviceId(id.into()),
                0,
                Vendor::Nvidia,
                &Reading::Unsupported,
            )
        };
        let mut silent = device("GPU-2", Some(Millijoules(3)));
        silent.stale_since = Some(Timestamp(0));
        let devices = vec![
            device("GPU-0", Some(Millijoules(7))),
            device("GPU-1", None),
            silent,
        ];
        let readings = BackendReadings {
            devices,
            ..BackendReadings::without_devices(BackendState::Ready)
        };
        let latest = |on_time| LatestReadings {
            readings: Some((Arc::new(readings.clone()), Timestamp(0))),
            on_time,
            ..LatestReadings::default()
        };
        let drawn = DeviceEnergy {
            device: DeviceId("GPU-0".into()),
            drawn: Millijoules(7),
        };
        assert_eq!(collect_energy(&[("nvidia", latest(true))]), [drawn]);
        assert_eq!(collect_energy(&[("nvidia", latest(false))]), []);
    }

    #[test]
    fn scans_when_more_is_unattributed_but_not_often() {
        let start = Instant::now();
        let mut trigger = ScanTrigger::default();
        let mut rises = |seconds: u64, gigabytes: u64| {
            let rest = Reading::Value(Bytes(gigabytes * 1_000_000_000));
            let snapshot = unexplained([rest, Reading::Value(Bytes(0))]);
            trigger.is_due(&snapshot, start + Duration::from_secs(seconds))
        };
        let polls = [
            (0, 0, false),
            (2, 10, true),
            (4, 10, false),
            // It grows right after a scan.
            (31, 20, false),
            (32, 20, true),
            // A tenth more may be noise.
            (100, 22, false),
            (102, 23, true),
            // Memory that was released and taken again belongs to another process.
            (200, 5, false),
            (202, 10, true),
        ];
        for (second, gigabytes, expected) in polls {
            assert_eq!(rises(second, gigabytes), expected, "at {second} s");
        }
    }

    #[test]
    fn unknown_memory_does_not_count() {
        let mut trigger = ScanTrigger::default();
        let start = Instant::now();
        let old = Reading::Stale(Bytes(9_000_000_000), 4);
        let failed = Reading::Failed("999".into());
        assert!(!trigger.is_due(&unexplained([old, failed]), start));
        let part = || Reading::Value(Bytes(5_000_000_000));
        let most = Reading::Value(Bytes(u64::MAX));
        assert!(trigger.is_due(&unexplained([part(), part()]), start));
        let later = start + ScanTrigger::MIN_INTERVAL;
        assert!(!trigger.is_due(&unexplained([part(), part()]), later));
        assert!(trigger.is_due(&unexplained([part(), most]), later));
    }
}
