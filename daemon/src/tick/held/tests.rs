//! Who holds a device, told from whoever had the same pid before or after.

use super::*;
use crate::backend::{Readings, Sharer};
use crate::host::users::System;
use gpukill_proto::snapshot::{BackendState, Vendor};
use std::sync::Arc;
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

/// A box with one card.
struct Stage {
    procfs: TempDir,
    users: Users,
    found: Found,
    people: BTreeMap<u32, Identity>,
    rows: Vec<GpuProcess>,
    sharers: Vec<Sharer>,
    listed: Reading<u32>,
}

impl Stage {
    fn new() -> Self {
        Self {
            procfs: tempfile::tempdir().unwrap(),
            users: Users::new(System::here()),
            found: Found::default(),
            people: BTreeMap::new(),
            rows: Vec::new(),
            sharers: Vec::new(),
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
        let open = Open {
            number: NODE,
            fd: 3,
            thread: None,
        };
        self.found.processes.insert(key, vec![open]);
    }

    /// Who has this pid, as far as is known.
    fn know(&mut self, key: ProcessKey, name: &str) {
        self.people.insert(key.pid, Identity::invented(key, name));
    }

    /// The driver lists it.
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
            nodes: vec![Node {
                name: "renderD128".into(),
                number: NODE,
                shared: false,
            }],
            sharers: self.sharers.clone(),
            ..DeviceReadings::unknown(id(), 0, Vendor::Amd, &why)
        };
        let readings = Readings {
            devices: vec![device],
            ..Readings::nothing(BackendState::Ready)
        };
        let latest = Latest {
            readings: Some((Arc::new(readings), Timestamp(0))),
            failure: None,
            on_time: true,
            recent: false,
            slow: None,
            events: Vec::new(),
        };
        let mut device = Device::unknown(id(), 0, Vendor::Amd, &why);
        device.process_count = self.listed.clone();
        let snapshot = Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            tick: 1,
            devices: vec![device],
            processes: self.rows.clone(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        let sight = Sight {
            latest: &[("amd", latest)],
            snapshot: &snapshot,
            found: &self.found,
            fleeting: &BTreeMap::new(),
            people: &self.people,
            users: &self.users,
            procfs: self.procfs.path(),
        };
        let mut held = sight.held(&BTreeMap::new(), &BTreeMap::new());
        assert_eq!(held.len(), 1);
        held.remove(0).holders
    }

    /// Of each holder its pid, its name, and for whom its client is counted.
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
    Reading::Failed("no such process here".into())
}

#[test]
fn nobody_is_told_under_the_name_of_whoever_had_the_pid() {
    let mut stage = Stage::new();
    stage.open(key(7, 100));
    stage.know(key(7, 100), "python");
    assert_eq!(stage.shown(), [(7, named("python"), None)]);
    // Whoever is known by this pid has ended, or has come since.
    for start in [50, 200] {
        stage.know(key(7, start), "sshd");
        assert_eq!(stage.shown(), [(7, nobody_here(), None)], "{start}");
    }
    // Nor where the driver lists it.
    stage.list(key(7, 100), Reading::Value(Bytes(5)));
    assert_eq!(stage.shown(), [(7, nobody_here(), None)]);
}

#[test]
fn what_the_driver_lists_is_put_beside_that_process_and_no_other() {
    let mut stage = Stage::new();
    stage.open(key(7, 100));
    stage.know(key(7, 100), "python");
    stage.list(key(7, 50), Reading::Value(Bytes(5)));
    let holders = stage.holders();
    let told: Vec<_> = holders
        .iter()
        .map(|it| (it.pid, &it.start_ticks, it.listed, &it.holds))
        .collect();
    // The one that is listed has nothing open.
    let none: Vec<String> = Vec::new();
    assert_eq!(told, [(7, &Reading::Value(50), true, &none)]);
}

#[test]
fn whoever_shares_a_client_is_marked_and_not_whoever_has_its_pid_now() {
    let mut stage = Stage::new();
    for pid in [7, 8, 9] {
        stage.open(key(pid, 100));
        stage.know(key(pid, 100), "python");
    }
    let sharer = |pid, start_ticks| Sharer {
        key: key(pid, start_ticks),
        with: 7,
    };
    // 9 was another one when the descriptors were read, and 10 has ended.
    stage.sharers = vec![sharer(8, 100), sharer(9, 50), sharer(10, 100)];
    let python = || named("python");
    assert_eq!(
        stage.shown(),
        [
            (7, python(), None),
            (8, python(), Some(7)),
            (9, python(), None)
        ]
    );
}

#[test]
fn what_a_process_holds_of_all_parts_of_a_device_is_as_old_as_the_oldest() {
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
        let mut stage = Stage::new();
        for part in &parts {
            stage.list(key(7, 100), part.clone());
        }
        let memories: Vec<_> = stage.holders().into_iter().map(|it| it.memory).collect();
        assert_eq!(memories, [expected], "{parts:?}");
    }
}

#[test]
fn of_whom_nobody_knows_whether_he_is_listed_the_memory_is_not_known() {
    let mut stage = Stage::new();
    stage.open(key(7, 100));
    stage.know(key(7, 100), "python");
    stage.found.unseen = Some("not permitted".into());
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
        // Others may be on it: this one was looked at, and is not.
        (
            Reading::Failed("not permitted".into()),
            Reading::Unsupported,
        ),
    ];
    for (listed, expected) in cases {
        stage.listed = listed.clone();
        let memories: Vec<_> = stage.holders().into_iter().map(|it| it.memory).collect();
        assert_eq!(memories, [expected], "{listed:?}");
    }
    // What is listed is.
    stage.listed = Reading::Stale(1, 9);
    stage.list(key(7, 100), Reading::Stale(Bytes(5), 9));
    let memories: Vec<_> = stage.holders().into_iter().map(|it| it.memory).collect();
    assert_eq!(memories, [Reading::Stale(Bytes(5), 9)]);
}
