//! Samples of holders, with something in every field.

use super::sample::{container, snapshot};
use super::{guard, rogue};
use gpukill_proto::holders::{
    Cause, DeviceHolders, DeviceLabel, EndPermission, EndedHolder, Explanation, FirstHolder,
    Holder, HolderFinding, HoldersPage, HoldersReport, ProcessState, Remedy, Role,
};
use gpukill_proto::model::{Container, DeviceId, GpuUse, Owner, OwnerKind, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent, Timestamp};

fn holder() -> Holder {
    Holder {
        pid: 60_211,
        start_ticks: Reading::Value(987_654),
        uid: Reading::Value(1003),
        user: Reading::Value("carol".into()),
        owner: Reading::Value(Owner {
            name: "carol".into(),
            uid: Some(1003),
            kind: OwnerKind::User,
        }),
        namespace_owner: Reading::Value(None),
        name: Reading::Value("python".into()),
        command: Reading::Withheld,
        state: Reading::Value(ProcessState::Sleeping),
        parent: Reading::Value(1),
        parent_name: Reading::Value("systemd".into()),
        group: Reading::Value(60_190),
        group_leader_is_here: Reading::Value(false),
        inner_pid: Reading::Value(Some(7)),
        container: Reading::Value(Some(Container {
            id: container(),
            manager: None,
            name: Reading::Value("train".into()),
            image: Reading::Unsupported,
            pod: None,
        })),
        holds: vec!["nvidia6".into(), "nvidia-uvm".into()],
        holds_this_device: true,
        listed: true,
        shares_with: None,
        passed_from: Some(FirstHolder {
            pid: 4182,
            uid: Some(1001),
        }),
        used_for: GpuUse {
            compute: true,
            graphics: false,
            mps: true,
        },
        memory: Reading::Unsupported,
    }
}

pub(super) fn label() -> DeviceLabel {
    device().label()
}

fn device() -> DeviceHolders {
    DeviceHolders {
        id: DeviceId("GPU-6".into()),
        index: 6,
        name: Reading::Value("H100".into()),
        memory_total: Reading::Value(Bytes(80 << 30)),
        memory_used: Reading::Value(Bytes(35 << 30)),
        memory_unattributed: Reading::Stale(Bytes(35 << 30), 12),
        utilization: Reading::Value(Percent(100)),
        busy_without_holder_since: Some(Timestamp(1)),
        holders: vec![holder()],
        ended: vec![EndedHolder {
            key: ProcessKey {
                pid: 60_190,
                start_ticks: 987_000,
            },
            name: Reading::Value("python".into()),
            user: Reading::Value("carol".into()),
            memory: Reading::Value(Bytes(35 << 30)),
            unattributed_before: Reading::Value(Bytes(0)),
            at: Timestamp(2),
        }],
        incomplete_reason: Some("x".into()),
    }
}

fn finding() -> HolderFinding {
    HolderFinding {
        cause: Cause::Orphans,
        pids: vec![60_211],
        evidence: vec!["x".into()],
        remedy: Some(Remedy::End(vec![60_211])),
    }
}

pub(super) fn page() -> HoldersPage {
    HoldersPage {
        at: Timestamp(1_763_700_000_000),
        devices: vec![HoldersReport {
            device: device(),
            roles: vec![Role::Unlisted],
            findings: vec![finding()],
            may_end: vec![60_211],
        }],
        next: Some(300),
    }
}

pub(super) fn explanation() -> Explanation {
    let label = device().label();
    Explanation {
        at: Timestamp(1_763_700_000_000),
        pid: 60_211,
        uses: vec![(label.clone(), snapshot().processes.remove(0))],
        holds: vec![(label, holder(), Role::Unlisted)],
        files_read_at: Reading::Value(Timestamp(1_763_700_000_000)),
        findings: vec![(6, finding())],
        frees: Reading::Value(Bytes(35 << 30)),
        shared_with: vec![60_212],
        may_end: EndPermission {
            people: vec!["carol".into(), "root".into()],
            includes_caller: true,
            never_reason: Some("x".into()),
        },
        guard: Reading::Value(guard::process_guard_status()),
        rogue: Reading::Value(rogue::assessment()),
    }
}

// The matches below have no wildcard: a new variant does not compile until it has a sample
// here.

pub(super) fn states() -> Vec<ProcessState> {
    let all = vec![
        ProcessState::Running,
        ProcessState::Sleeping,
        ProcessState::Uninterruptible(None),
        ProcessState::Uninterruptible(Some("nvidia_close".into())),
        ProcessState::Stopped,
        ProcessState::Zombie,
        ProcessState::Other('I'),
    ];
    for state in &all {
        match state {
            ProcessState::Running
            | ProcessState::Sleeping
            | ProcessState::Uninterruptible(_)
            | ProcessState::Stopped
            | ProcessState::Zombie
            | ProcessState::Other(_) => {}
        }
    }
    all
}

pub(super) fn roles() -> Vec<Role> {
    let all = vec![
        Role::User,
        Role::MpsClient,
        Role::Mps,
        Role::Display,
        Role::Monitor,
        Role::Gone,
        Role::Orphan {
            parent: Some(60_190),
            ended: Some(Timestamp(2)),
        },
        Role::OtherNamespace,
        Role::Zombie,
        Role::Uninterruptible,
        Role::Unlisted,
        Role::SharedClient,
        Role::Passed,
    ];
    for role in &all {
        match role {
            Role::User
            | Role::MpsClient
            | Role::Mps
            | Role::Display
            | Role::Monitor
            | Role::Gone
            | Role::Orphan { .. }
            | Role::OtherNamespace
            | Role::Zombie
            | Role::Uninterruptible
            | Role::Unlisted
            | Role::SharedClient
            | Role::Passed => {}
        }
    }
    all
}

pub(super) const CAUSES: [Cause; 10] = [
    Cause::Orphans,
    Cause::OtherNamespace,
    Cause::Zombie,
    Cause::Uninterruptible,
    Cause::Mps,
    Cause::Display,
    Cause::TearingDown,
    Cause::BusyWithoutHolder,
    Cause::Unlisted,
    Cause::Unknown,
];

pub(super) fn remedies() -> Vec<Remedy> {
    let all = vec![
        Remedy::End(vec![7, 300]),
        Remedy::Reset,
        Remedy::Reap(300),
        Remedy::Wait,
    ];
    for remedy in &all {
        match remedy {
            Remedy::End(_) | Remedy::Reset | Remedy::Reap(_) | Remedy::Wait => {}
        }
    }
    all
}
