//! One process is inspected without a scan of others, and old facts about others say so.

use super::*;
use crate::backend::{BackendReadings, DeviceNode, DeviceReadings, SharedClient};
use crate::fd_scan::{DeviceNumber, WatchMode};
use crate::host::accounts::SlurmAccounts;
use crate::host::commands::CommandLineCache;
use crate::host::containers::ContainerCache;
use crate::host::users::SystemNameService;
use crate::state;
use gpukill_proto::model::{BackendState, Device, GpuProcess, Vendor};
use std::os::unix::fs::symlink;
use std::time::Duration;
use tempfile::TempDir;

/// `/dev/full`, with the same number on every Linux.
const NODE: DeviceNumber = DeviceNumber { major: 1, minor: 7 };

const NOW: Timestamp = Timestamp(1_000_000);

fn id() -> DeviceId {
    DeviceId("GPU-0".into())
}

/// A host with one GPU. Open files of its driver are scanned on request.
struct InspectedHost {
    procfs: TempDir,
    fd_scan: FdScanHandle,
    inspector: ProcessInspector,
    published: PublishedPoll,
}

impl InspectedHost {
    fn new() -> Self {
        let procfs = tempfile::tempdir().unwrap();
        let root = procfs.path().to_owned();
        let fd_scan = FdScanHandle::start(root.clone()).unwrap();
        fd_scan.watch("nvidia", [NODE].into(), WatchMode::OnRequest);
        let processes = ProcessReader::new(
            root.clone(),
            CommandLineCache::new(),
            ContainerCache::new(root.clone(), ""),
            SlurmAccounts::new(),
            root.clone(),
        );
        let device = DeviceReadings {
            nodes: vec![DeviceNode {
                name: "nvidia0".into(),
                number: NODE,
                shared: false,
            }],
            ..DeviceReadings::unknown(id(), 0, Vendor::Nvidia, &Reading::Unsupported)
        };
        let last_readings = LastReadings::default();
        last_readings.replace(vec![Arc::new(BackendReadings {
            devices: vec![device],
            ..BackendReadings::without_devices(BackendState::Ready)
        })]);
        let users = Users::new(SystemNameService::for_this_host());
        let (_, state) = state::channel("box".into(), Duration::from_secs(2));
        let mut published = state.borrow().clone();
        let snapshot = Arc::make_mut(&mut published.snapshot);
        snapshot.taken_at = NOW;
        snapshot.devices = vec![Device::unknown(
            id(),
            0,
            Vendor::Nvidia,
            &Reading::Unsupported,
        )];
        Self {
            inspector: ProcessInspector::new(
                fd_scan.clone(),
                processes,
                users,
                root,
                last_readings,
            ),
            procfs,
            fd_scan,
            published,
        }
    }

    /// Adds a process with a descriptor of this file.
    fn add_process(&self, pid: u32, file: &str) {
        let directory = self.procfs.path().join(pid.to_string());
        std::fs::create_dir_all(directory.join("fd")).unwrap();
        let stat = format!("{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0");
        std::fs::write(directory.join("stat"), stat).unwrap();
        symlink(file, directory.join("fd/5")).unwrap();
    }

    fn inspect(&self, pid: u32) -> InspectedProcess {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.inspector
            .inspect(&self.published, (pid, LimitGroup::Unknown), NOW, deadline)
    }

    /// The holders of the GPU: pid, open files, whether listed.
    fn holders(&self, pid: u32) -> Vec<(u32, Vec<String>, bool)> {
        let holders = self.inspect(pid).devices.remove(0).holders.into_iter();
        holders
            .map(|holder| (holder.pid, holder.holds, holder.listed))
            .collect()
    }

    /// Publishes what this process holds now as collected at this time, with another process.
    fn publish_holders_of(&mut self, pid: u32, at: Timestamp) {
        let mut devices = self.inspect(pid).devices;
        let other = Holder {
            pid: 99,
            ..devices[0].holders[0].clone()
        };
        devices[0].holders.push(other);
        devices[0].incomplete_reason = None;
        self.published.holders = Arc::new(devices);
        self.published.holders_at = Some(at);
    }
}

fn nvidia0() -> Vec<String> {
    vec!["nvidia0".to_owned()]
}

#[test]
fn file_holder_is_found_without_a_scan() {
    let host = InspectedHost::new();
    host.add_process(7, "/dev/full");
    host.add_process(8, "/dev/null");
    assert_eq!(host.holders(7), [(7, nvidia0(), false)]);
    assert_eq!(host.holders(8), []);
    assert_eq!(host.holders(9), []);
    let inspected = host.inspect(7);
    assert_eq!(inspected.files_read_at, Reading::Value(NOW));
    let device = &inspected.devices[0];
    assert_eq!(device.holders[0].name, Reading::Value("python".into()));
    let why = "the files of other processes have not been checked yet";
    assert_eq!(device.incomplete_reason.as_deref(), Some(why));
    // The first request for a scan is this one, and so far there is no result of a scan.
    assert_eq!(host.fd_scan.file_holders().processes.len(), 0);
    assert_eq!(host.fd_scan.request_scan(), FIRST_REQUEST);
}

/// The number of the first request: the change of the watched devices was one, too.
const FIRST_REQUEST: u64 = 2;

#[test]
fn listed_process_has_the_facts_of_its_row() {
    let mut host = InspectedHost::new();
    host.add_process(7, "/dev/full");
    let row = GpuProcess::unknown(id(), 7, NOW, &Reading::Unsupported);
    Arc::make_mut(&mut host.published.snapshot).processes = vec![GpuProcess {
        start_ticks: Reading::Value(100),
        name: Reading::Value("of the row".into()),
        ..row
    }];
    assert_eq!(host.holders(7), [(7, nvidia0(), true)]);
    let holder = host.inspect(7).devices.remove(0).holders.remove(0);
    assert_eq!(holder.name, Reading::Value("of the row".into()));
}

#[test]
fn rows_of_an_earlier_process_with_the_pid_are_left_out() {
    let host = InspectedHost::new();
    host.add_process(7, "/dev/full");
    let row = |start_ticks| GpuProcess {
        start_ticks,
        ..GpuProcess::unknown(id(), 7, NOW, &Reading::Unsupported)
    };
    let identity = host.inspect(7).identity;
    assert!(identity.includes(&row(Reading::Value(100))));
    assert!(!identity.includes(&row(Reading::Value(99))));
    // Its driver lists it, and it cannot be identified.
    assert!(identity.includes(&row(Reading::Unsupported)));
}

#[test]
fn old_facts_about_others_have_an_age() {
    let mut host = InspectedHost::new();
    host.add_process(7, "/dev/full");
    // Of this poll, and then of one 40 s ago.
    host.publish_holders_of(7, NOW);
    let both = [(7, nvidia0(), false), (99, nvidia0(), false)];
    assert_eq!(host.holders(7), both);
    assert_eq!(host.inspect(7).devices[0].incomplete_reason, None);
    host.published.holders_at = Some(Timestamp(NOW.0 - 40_000));
    assert_eq!(host.holders(7), both[..1]);
    let why = "the files of other processes were checked 40s ago";
    let device = host.inspect(7).devices.remove(0);
    assert_eq!(device.incomplete_reason.as_deref(), Some(why));
}

#[test]
fn files_that_cannot_be_read_now_are_those_of_the_last_scan() {
    let mut host = InspectedHost::new();
    host.add_process(7, "/dev/full");
    let forty_seconds_ago = Timestamp(NOW.0 - 40_000);
    host.publish_holders_of(7, forty_seconds_ago);
    let table = host.procfs.path().join("7/fd");
    std::fs::remove_dir_all(&table).unwrap();
    // A table that is no directory cannot be read by any user.
    std::fs::write(&table, "").unwrap();
    let inspected = host.inspect(7);
    assert_eq!(
        inspected.files_read_at,
        Reading::Stale(forty_seconds_ago, 40)
    );
    assert_eq!(host.holders(7), [(7, nvidia0(), false)]);
    // The PID was reused.
    let stat = "7 (bash) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 200 0 0 0";
    std::fs::write(host.procfs.path().join("7/stat"), stat).unwrap();
    let inspected = host.inspect(7);
    assert!(inspected.files_read_at.failure().is_some(), "{inspected:?}");
    assert_eq!(host.holders(7), []);
}

#[test]
fn clients_of_other_processes_are_shared() {
    let key = |pid| ProcessKey {
        pid,
        start_ticks: 1,
    };
    let client = |pid, owner_pid| SharedClient {
        key: key(pid),
        owner_pid,
    };
    let device = DeviceReadings {
        shared_clients: vec![client(74, 71), client(75, 71), client(80, 79)],
        ..DeviceReadings::unknown(id(), 0, Vendor::Amd, &Reading::Unsupported)
    };
    let readings = [Arc::new(BackendReadings {
        devices: vec![device],
        ..BackendReadings::without_devices(BackendState::Ready)
    })];
    let others = |pid| sharing_processes(&readings, pid);
    assert_eq!(others(71), [(id(), [74, 75].into())]);
    assert_eq!(others(74), [(id(), [71, 75].into())]);
    assert_eq!(others(80), [(id(), [79].into())]);
    assert_eq!(others(72), []);
}
