//! Tests of the causes with their evidence, and of what no finding may say.

mod causes;
mod properties;
mod remedies;
mod stale;

use super::*;
use gpukill_proto::holders::{FirstHolder, ProcessState};
use gpukill_proto::model::{
    Container, ContainerId, DeviceId, GpuUse, Owner, OwnerKind, ProcessKey,
};
use gpukill_proto::reading::Reading::{self, Failed, Unsupported, Value};
use gpukill_proto::text::LISTED_BEFORE_START;
use gpukill_proto::units::Percent;

const NOW: Timestamp = Timestamp(1_795_269_751_250);

fn gib(tenths: u64) -> Bytes {
    Bytes((tenths << 30) / 10)
}

/// A device of which 35.6 of 80 GiB are used, without any explanation.
fn device(holders: Vec<Holder>) -> DeviceHolders {
    DeviceHolders {
        id: DeviceId("GPU-6".into()),
        index: 6,
        name: Value("NVIDIA H100 80GB HBM3".into()),
        memory_total: Value(gib(800)),
        memory_used: Value(gib(356)),
        memory_unattributed: Value(gib(356)),
        utilization: Value(Percent(0)),
        busy_without_holder_since: None,
        holders,
        ended: Vec::new(),
        incomplete_reason: None,
    }
}

/// Carol's python, below her shell, has the device open and is not listed.
fn holder(pid: u32) -> Holder {
    Holder {
        pid,
        start_ticks: Value(u64::from(pid) * 100),
        uid: Value(1003),
        user: Value("carol".into()),
        owner: Value(Owner {
            name: "carol".into(),
            uid: Some(1003),
            kind: OwnerKind::User,
        }),
        namespace_owner: Value(None),
        name: Value("python".into()),
        command: Value("python train.py".into()),
        state: Value(ProcessState::Sleeping),
        parent: Value(60_000),
        parent_name: Value("bash".into()),
        group: Value(pid),
        group_leader_is_here: Value(true),
        inner_pid: Value(None),
        container: Value(None),
        holds: vec!["nvidia6".into(), "nvidia-uvm".into()],
        holds_this_device: true,
        listed: false,
        shares_with: None,
        passed_from: None,
        used_for: GpuUse::default(),
        memory: Unsupported,
    }
}

fn named(pid: u32, name: &str) -> Holder {
    Holder {
        name: Value(name.into()),
        ..holder(pid)
    }
}

fn listed(pid: u32, memory: Reading<Bytes>) -> Holder {
    Holder {
        listed: true,
        used_for: GpuUse {
            compute: true,
            ..GpuUse::default()
        },
        memory,
        ..holder(pid)
    }
}

fn worker(pid: u32) -> Holder {
    Holder {
        parent: Value(1),
        parent_name: Value("systemd".into()),
        group: Value(60_190),
        group_leader_is_here: Value(false),
        ..holder(pid)
    }
}

fn ended(pid: u32, tenths: u64, seconds: i64) -> EndedHolder {
    EndedHolder {
        key: ProcessKey {
            pid,
            start_ticks: 1,
        },
        name: Value("python".into()),
        user: Value("carol".into()),
        memory: Value(gib(tenths)),
        unattributed_before: Value(gib(0)),
        at: NOW.plus_seconds(-seconds),
    }
}

fn contained(pid: u32) -> Holder {
    Holder {
        container: Value(Some(Container {
            id: ContainerId {
                runtime: "docker".into(),
                id: "ab".repeat(32),
            },
            manager: None,
            name: Value("train".into()),
            image: Unsupported,
            pod: None,
        })),
        inner_pid: Value(Some(7)),
        ..holder(pid)
    }
}

fn in_state(pid: u32, state: ProcessState) -> Holder {
    Holder {
        state: Value(state),
        ..holder(pid)
    }
}

fn zombie(pid: u32, parent: u32, name: &str) -> Holder {
    Holder {
        parent: Value(parent),
        parent_name: Value(name.into()),
        holds: Vec::new(),
        holds_this_device: false,
        ..in_state(pid, ProcessState::Zombie)
    }
}

fn finding(cause: Cause, pids: &[u32], evidence: &[&str], remedy: Option<Remedy>) -> HolderFinding {
    HolderFinding {
        cause,
        pids: pids.to_vec(),
        evidence: evidence.iter().map(|text| (*text).to_owned()).collect(),
        remedy,
    }
}

#[test]
fn explained_memory_has_no_finding() {
    let mut explained = device(vec![worker(60_211), zombie(7, 1, "systemd")]);
    explained.memory_unattributed = Value(Bytes(0));
    assert_eq!(find_causes(&explained, NOW), []);
    explained.memory_unattributed = Failed("the memory of a process is not known".into());
    assert_eq!(find_causes(&explained, NOW), []);
}

#[test]
fn workers_without_leader_are_orphans() {
    let mut orphaned = device(vec![worker(60_211), worker(60_212)]);
    orphaned.ended = vec![ended(60_190, 356, 7_800)];
    let end = Some(Remedy::End(vec![60_211, 60_212]));
    let expected = finding(
        Cause::Orphans,
        &[60_211, 60_212],
        &[
            "60211 and 60212 have the device open, and the driver does not list them",
            "their process group's leader 60190 is gone",
            "60190 (python of carol) ended 2h 10m ago and held 35.6 GiB",
            "their parent is 1, which adopts orphaned processes",
        ],
        end,
    );
    assert_eq!(find_causes(&orphaned, NOW), [expected]);
    let roles = orphaned
        .holders
        .iter()
        .map(|holder| role(holder, &orphaned));
    let orphan = Role::Orphan {
        parent: Some(60_190),
        ended: Some(NOW.plus_seconds(-7_800)),
    };
    assert_eq!(roles.collect::<Vec<_>>(), [orphan, orphan]);
}

#[test]
fn orphan_conditions() {
    let leader_gone = Holder {
        parent: Value(60_000),
        parent_name: Value("bash".into()),
        ..worker(7)
    };
    let adopted = Holder {
        group_leader_is_here: Value(true),
        ..worker(7)
    };
    let by_a_user_manager = Holder {
        parent: Value(1203),
        ..adopted.clone()
    };
    let service = Holder {
        group: Value(7),
        ..adopted.clone()
    };
    let unknown = Holder {
        group: Unsupported,
        group_leader_is_here: Unsupported,
        ..holder(7)
    };
    let shared_only = Holder {
        holds: vec!["nvidiactl".into()],
        holds_this_device: false,
        ..worker(7)
    };
    let unsaid = Holder {
        group_leader_is_here: Failed("x".into()),
        ..worker(7)
    };
    let orphan = |of| Role::Orphan {
        parent: of,
        ended: None,
    };
    let cases = [
        ("its leader is gone", leader_gone, orphan(Some(60_190))),
        ("process 1 took it in alone", adopted, Role::Unlisted),
        ("a user's systemd did", by_a_user_manager, Role::Unlisted),
        ("whether its leader is here failed", unsaid, Role::Unlisted),
        ("a service leads itself", service, Role::Unlisted),
        ("nothing is known", unknown, Role::Unlisted),
        ("it holds no device", shared_only, Role::Monitor),
    ];
    for (what, holder, expected) in cases {
        assert_eq!(role(&holder, &device(vec![])), expected, "{what}");
    }
}

#[test]
fn reused_pid_makes_no_orphan() {
    let mut again = device(vec![holder(60_190)]);
    again.ended = vec![ended(60_190, 356, 7_800)];
    for is_here in [Value(true), Value(false), Failed("x".into())] {
        again.holders[0].group_leader_is_here = is_here;
        assert_eq!(role(&again.holders[0], &again), Role::Unlisted);
    }
}

#[test]
fn memory_of_missing_pids_is_unattributed() {
    let gone = Holder {
        start_ticks: Failed("no such process".into()),
        name: Failed("no such process".into()),
        ..listed(60_190, Value(gib(356)))
    };
    let mut under_it = device(vec![gone, worker(60_211)]);
    under_it.memory_unattributed = Value(Bytes(0));
    let expected = finding(
        Cause::Orphans,
        &[60_211],
        &[
            "60211 (python of carol) has the device open, and the driver does not list it",
            "its process group's leader 60190 is gone",
            "its parent is 1, which adopts orphaned processes",
            "the driver lists 35.6 GiB under 60190, which does not exist on this host",
        ],
        Some(Remedy::End(vec![60_211])),
    );
    assert_eq!(find_causes(&under_it, NOW), [expected]);
    assert_eq!(role(&under_it.holders[0], &under_it), Role::Gone);
    // The pid belongs to another process now.
    under_it.holders[0].start_ticks = Failed(LISTED_BEFORE_START.into());
    let found = find_causes(&under_it, NOW).remove(0).evidence.pop();
    let text = format!("the driver lists 35.6 GiB under 60190, {LISTED_BEFORE_START}");
    assert_eq!(found, Some(text));
    assert_eq!(role(&under_it.holders[0], &under_it), Role::Gone);
}

#[test]
fn incomplete_scan_is_stated() {
    let mut incomplete = device(vec![]);
    incomplete.incomplete_reason = Some("3 processes may not be looked at".into());
    let others = "not every process could be scanned, so others may have the device open: \
                  3 processes may not be looked at";
    let expected = finding(
        Cause::Unknown,
        &[],
        &["35.6 GiB are used, and no process explains them", others],
        None,
    );
    assert_eq!(find_causes(&incomplete, NOW), [expected]);
}

#[test]
fn likeliest_cause_is_first() {
    let stuck = ProcessState::Uninterruptible(None);
    let mut all = device(vec![
        named(10, "Xorg"),
        holder(11),
        named(12, "nvidia-cuda-mps"),
        contained(13),
        zombie(14, 60, "torchrun"),
        in_state(15, stuck),
        worker(16),
    ]);
    all.ended = vec![ended(9, 356, 3)];
    let causes: Vec<Cause> = find_causes(&all, NOW)
        .iter()
        .map(|found| found.cause)
        .collect();
    assert_eq!(
        causes,
        [
            Cause::Orphans,
            Cause::TearingDown,
            Cause::Uninterruptible,
            Cause::Zombie,
            Cause::OtherNamespace,
            Cause::Mps,
            Cause::Unlisted,
            Cause::Display,
        ]
    );
}

#[test]
fn finding_size_is_bounded() {
    let many = device((2..5_002).map(worker).collect());
    let found = find_causes(&many, NOW);
    assert_eq!(found[0].pids.len(), 1000);
    assert_eq!(
        found[0].evidence[0],
        "2, 3, 4, 5 and 4996 more have the device open, and the driver does not list them"
    );
    assert!(found[0].evidence.len() < 10);
}
