//! Tests that holders are not confused with other processes of the same PID.

use super::*;
use crate::backend::SharedClient;
use crate::host::users::SystemNameService;
use gpukill_proto::model::{BackendState, Vendor};
use tempfile::TempDir;

const NODE: DeviceNumber = DeviceNumber {
    major: 226,
    minor: 128,
};

fn key(pid: u32, start_ticks: u64) -> ProcessKey {
    ProcessKey { pid, start_ticks }
}

fn id() -> DeviceId {
    DeviceId("0000:c1:00.0".into())
}

/// A host with one card.
struct HolderFixture {
    procfs: TempDir,
    users: Users,
    found: FileHolders,
    processes: BTreeMap<u32, ProcessMetadata>,
    rows: Vec<GpuProcess>,
    shared_clients: Vec<SharedClient>,
    listed: Reading<u32>,
}

impl HolderFixture {
    fn new() -> Self {
        Self {
            procfs: tempfile::tempdir().unwrap(),
            users: Users::new(SystemNameService::for_this_host()),
            found: FileHolders::default(),
            processes: BTreeMap::new(),
            rows: Vec::new(),
            shared_clients: Vec::new(),
            listed: Reading::Value(0),
        }
    }

    /// A process that has the card open now.
    fn open(&mut self, key: ProcessKey) {
        let (pid, start) = (key.pid, key.start_ticks);
        let directory = self.procfs.path().join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0");
        std::fs::write(directory.join("stat"), stat).unwrap();
        let open = OpenDescriptor {
            number: NODE,
            fd: 3,
            thread: None,
        };
        self.found.processes.insert(key, vec![open]);
    }

    /// Sets the known process of this PID.
    fn know(&mut self, key: ProcessKey, name: &str) {
        self.processes
            .insert(key.pid, ProcessMetadata::with_name(key, name));
    }

    /// Adds it to the driver's list.
    fn list(&mut self, key: ProcessKey, memory: Reading<Bytes>) {
        let row = GpuProcess::unknown(id(), key.pid, Timestamp(0), &Reading::Unsupported);
        self.rows.push(GpuProcess {
            start_ticks: Reading::Value(key.start_ticks),
            memory,
            ..row
        });
    }

    fn holders(&self) -> Vec<Holder> {
        let why = Reading::Unsupported;
        let device = DeviceReadings {
            nodes: vec![DeviceNode {
                name: "renderD128".into(),
                number: NODE,
                shared: false,
            }],
            shared_clients: self.shared_clients.clone(),
            ..DeviceReadings::unknown(id(), 0, Vendor::Amd, &why)
        };
        let readings = BackendReadings {
            devices: vec![device],
            ..BackendReadings::without_devices(BackendState::Ready)
        };
        let mut device = Device::unknown(id(), 0, Vendor::Amd, &why);
        device.process_count = self.listed.clone();
        let snapshot = Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            polls: 1,
            devices: vec![device],
            processes: self.rows.clone(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let context = HolderContext {
            readings: &[Arc::new(readings)],
            snapshot: &snapshot,
            file_holders: &self.found,
            short_lived: &BTreeMap::new(),
            processes: &self.processes,
            users: &self.users,
            procfs: self.procfs.path(),
        };
        let mut held = context.device_holders(&BTreeMap::new(), &BTreeMap::new());
        assert_eq!(held.len(), 1);
        held.remove(0).holders
    }

    /// The PID, name and shared client of each holder.
    fn shown(&self) -> Vec<(u32, Reading<String>, Option<u32>)> {
        let holders = self.holders().into_iter();
        holders
            .map(|holder| (holder.pid, holder.name, holder.shares_with))
            .collect()
    }
}

fn named(name: &str) -> Reading<String> {
    Reading::Value(name.into())
}

fn nobody_here<T>() -> Reading<T> {
    Reading::Failed("no such process on this host".into())
}

#[test]
fn holder_is_not_named_after_a_reused_pid() {
    let mut fixture = HolderFixture::new();
    fixture.open(key(7, 100));
    fixture.know(key(7, 100), "python");
    assert_eq!(fixture.shown(), [(7, named("python"), None)]);
    // The known process with this PID has ended or has started since.
    for start in [50, 200] {
        fixture.know(key(7, start), "sshd");
        assert_eq!(fixture.shown(), [(7, nobody_here(), None)], "{start}");
    }
    // The same where the driver lists it.
    fixture.list(key(7, 100), Reading::Value(Bytes(5)));
    assert_eq!(fixture.shown(), [(7, nobody_here(), None)]);
}

#[test]
fn listing_joins_only_its_own_process() {
    let mut fixture = HolderFixture::new();
    fixture.open(key(7, 100));
    fixture.know(key(7, 100), "python");
    fixture.list(key(7, 50), Reading::Value(Bytes(5)));
    let holders = fixture.holders();
    let rows: Vec<_> = holders
        .iter()
        .map(|it| (it.pid, &it.start_ticks, it.listed, &it.holds))
        .collect();
    // The listed process has no file open.
    let none: Vec<String> = Vec::new();
    assert_eq!(rows, [(7, &Reading::Value(50), true, &none)]);
}

#[test]
fn marks_client_sharers_but_not_reused_pids() {
    let mut fixture = HolderFixture::new();
    for pid in [7, 8, 9] {
        fixture.open(key(pid, 100));
        fixture.know(key(pid, 100), "python");
    }
    let shared_client = |pid, start_ticks| SharedClient {
        key: key(pid, start_ticks),
        owner_pid: 7,
    };
    // 9 was another process when the descriptors were read, and 10 has ended.
    fixture.shared_clients = vec![
        shared_client(8, 100),
        shared_client(9, 50),
        shared_client(10, 100),
    ];
    let python = || named("python");
    assert_eq!(
        fixture.shown(),
        [
            (7, python(), None),
            (8, python(), Some(7)),
            (9, python(), None)
        ]
    );
}

#[test]
fn memory_is_as_old_as_its_oldest_part() {
    let cases = [
        (vec![Reading::Value(Bytes(2))], Reading::Value(Bytes(2))),
        (
            vec![Reading::Value(Bytes(2)), Reading::Value(Bytes(3))],
            Reading::Value(Bytes(5)),
        ),
        (
            vec![Reading::Stale(Bytes(2), 7), Reading::Stale(Bytes(3), 9)],
            Reading::Stale(Bytes(5), 9),
        ),
        (
            vec![Reading::Value(Bytes(2)), Reading::Stale(Bytes(3), 9)],
            Reading::Stale(Bytes(5), 9),
        ),
        (
            vec![Reading::Value(Bytes(2)), Reading::Unsupported],
            Reading::Unsupported,
        ),
    ];
    for (parts, expected) in cases {
        let mut fixture = HolderFixture::new();
        for part in &parts {
            fixture.list(key(7, 100), part.clone());
        }
        let memories: Vec<_> = fixture.holders().into_iter().map(|it| it.memory).collect();
        assert_eq!(memories, [expected], "{parts:?}");
    }
}

#[test]
fn memory_is_unknown_without_a_fresh_list() {
    let mut fixture = HolderFixture::new();
    fixture.open(key(7, 100));
    fixture.know(key(7, 100), "python");
    fixture.found.incomplete_reason = Some("not permitted".into());
    let cases = [
        (Reading::Value(0), Reading::Unsupported),
        (Reading::Unsupported, Reading::Unsupported),
        (
            Reading::Failed("asleep".into()),
            Reading::Failed("asleep".into()),
        ),
        (
            Reading::Stale(0, 9),
            Reading::Failed("the list of processes is 9 s old".into()),
        ),
        // Others may hold it: this process was scanned and does not.
        (
            Reading::Failed("not permitted".into()),
            Reading::Unsupported,
        ),
    ];
    for (listed, expected) in cases {
        fixture.listed = listed.clone();
        let memories: Vec<_> = fixture.holders().into_iter().map(|it| it.memory).collect();
        assert_eq!(memories, [expected], "{listed:?}");
    }
    // The listed process is.
    fixture.listed = Reading::Stale(1, 9);
    fixture.list(key(7, 100), Reading::Stale(Bytes(5), 9));
    let memories: Vec<_> = fixture.holders().into_iter().map(|it| it.memory).collect();
    assert_eq!(memories, [Reading::Stale(Bytes(5), 9)]);
}
