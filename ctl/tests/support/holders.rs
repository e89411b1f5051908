//! GPUs with memory held for each known cause, and two of their processes.

use super::{NOW, container, gib, id, process, ruled, snapshot};
use gpukill_policy::holders::{find_causes, role};
use gpukill_proto::holders::{
    DeviceHolders, EndPermission, EndedHolder, Explanation, Holder, HoldersReport, ProcessState,
};
use gpukill_proto::model::{Ancestor, GpuUse, Owner, OwnerKind, ProcessKey};
use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};
use gpukill_proto::units::{Bytes, Percent};

fn holder(pid: u32, uid: u32, user: &str, name: &str) -> Holder {
    Holder {
        pid,
        start_ticks: Value(u64::from(pid) * 100),
        uid: Value(uid),
        user: Value(user.into()),
        owner: Value(Owner {
            name: user.into(),
            uid: Some(uid),
            kind: OwnerKind::User,
        }),
        namespace_owner: Value(None),
        name: Value(name.into()),
        command: Value(format!("{name} train.py --model llama-70b")),
        state: Value(ProcessState::Sleeping),
        parent: Value(48_200),
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

fn listed(pid: u32, user: &str, tenths: u64) -> Holder {
    Holder {
        listed: true,
        shares_with: None,
        passed_from: None,
        used_for: GpuUse {
            compute: true,
            ..GpuUse::default()
        },
        memory: Value(gib(tenths)),
        ..holder(pid, 1000, user, "python")
    }
}

fn monitor() -> Holder {
    Holder {
        holds: vec!["nvidiactl".into()],
        holds_this_device: false,
        ..holder(1002, 0, "root", "nvidia-persiste")
    }
}

fn device(index: u32, unattributed: u64, holders: Vec<Holder>) -> DeviceHolders {
    DeviceHolders {
        id: id(index),
        index,
        name: Value("NVIDIA H100 80GB HBM3".into()),
        memory_total: Value(gib(796)),
        memory_used: Value(gib(356)),
        memory_unattributed: Value(gib(unattributed)),
        utilization: Value(Percent(0)),
        busy_without_holder_since: None,
        holders,
        ended: Vec::new(),
        incomplete_reason: None,
    }
}

fn ended(pid: u32, seconds: i64) -> EndedHolder {
    EndedHolder {
        key: ProcessKey {
            pid,
            start_ticks: 1,
        },
        name: Value("python".into()),
        user: Value("carol".into()),
        memory: Value(gib(356)),
        unattributed_before: Value(gib(0)),
        at: NOW.plus_seconds(-seconds),
    }
}

fn orphaned() -> DeviceHolders {
    let worker = |pid| Holder {
        parent: Value(1),
        parent_name: Value("systemd".into()),
        group: Value(60_190),
        group_leader_is_here: Value(false),
        ..holder(pid, 1003, "carol", "python")
    };
    DeviceHolders {
        ended: vec![ended(60_190, 7_800)],
        ..device(6, 356, vec![monitor(), worker(60_211), worker(60_212)])
    }
}

fn in_a_container() -> DeviceHolders {
    let mut inner = holder(61_001, 0, "root", "python3");
    inner.container = Value(container("docker", "vllm", None));
    inner.owner = Value(Owner {
        name: "container vllm".into(),
        uid: None,
        kind: OwnerKind::Container,
    });
    inner.command = Withheld;
    let server = Holder {
        memory: Value(gib(4)),
        listed: true,
        ..holder(900, 0, "root", "nvidia-cuda-mps")
    };
    // Memory passed on by the server is counted for the server.
    let helper = Holder {
        shares_with: Some(900),
        passed_from: None,
        ..holder(901, 0, "root", "python3")
    };
    let client = Holder {
        used_for: GpuUse {
            compute: true,
            mps: true,
            graphics: false,
        },
        ..listed(51_002, "bob", 60)
    };
    device(1, 292, vec![server, helper, client, inner])
}

fn stuck() -> DeviceHolders {
    let waiting = Holder {
        state: Value(ProcessState::Uninterruptible(Some("nvidia_close".into()))),
        ..holder(70_001, 1000, "alice", "python")
    };
    let zombie = Holder {
        state: Value(ProcessState::Zombie),
        parent_name: Value("torchrun".into()),
        holds: Vec::new(),
        holds_this_device: false,
        command: Unsupported,
        ..holder(70_002, 1000, "alice", "python")
    };
    device(2, 356, vec![waiting, zombie])
}

fn of_a_workstation() -> DeviceHolders {
    let xorg = holder(1500, 1000, "dana", "Xorg");
    let unlisted = holder(1600, 1000, "dana", "blender");
    DeviceHolders {
        incomplete_reason: Some("3 processes of other users may not be looked at".into()),
        ..device(3, 20, vec![xorg, unlisted, listed(1700, "dana", 336)])
    }
}

fn reaped_by_others() -> DeviceHolders {
    let zombie = Holder {
        state: Value(ProcessState::Zombie),
        parent: Value(1203),
        parent_name: Value("containerd-shim".into()),
        holds: Vec::new(),
        holds_this_device: false,
        ..holder(70_003, 1000, "alice", "python")
    };
    let gone = Holder {
        start_ticks: Failed("no such process".into()),
        name: Failed("no such process".into()),
        user: Failed("no such process".into()),
        owner: Failed("no such process".into()),
        uid: Failed("no such process".into()),
        state: Failed("no such process".into()),
        holds: Vec::new(),
        holds_this_device: false,
        ..listed(60_190, "", 100)
    };
    device(4, 256, vec![gone, zombie])
}

fn tearing_down() -> DeviceHolders {
    DeviceHolders {
        ended: vec![ended(60_190, 3)],
        ..device(5, 356, vec![monitor()])
    }
}

fn busy_without_holder() -> DeviceHolders {
    DeviceHolders {
        memory_used: Value(gib(0)),
        utilization: Value(Percent(100)),
        busy_without_holder_since: Some(NOW.plus_seconds(-300)),
        ..device(7, 0, vec![])
    }
}

fn unknown() -> DeviceHolders {
    DeviceHolders {
        incomplete_reason: Some("3 processes of other users may not be looked at".into()),
        ..device(8, 356, vec![])
    }
}

fn read_a_while_ago() -> DeviceHolders {
    DeviceHolders {
        memory_used: Stale(gib(356), 7),
        memory_unattributed: Stale(gib(356), 7),
        ..device(13, 0, vec![holder(1600, 1000, "dana", "blender")])
    }
}

fn healthy() -> DeviceHolders {
    DeviceHolders {
        memory_unattributed: Value(Bytes(0)),
        ..device(0, 0, vec![listed(48_213, "alice", 356)])
    }
}

pub(crate) fn report(device: DeviceHolders) -> HoldersReport {
    let roles = device.holders.iter().map(|holder| role(holder, &device));
    HoldersReport {
        roles: roles.collect(),
        findings: find_causes(&device, NOW),
        may_end: vec![60_211, 60_212, 61_001],
        device,
    }
}

/// A GPU for each known cause, a normally used GPU and a free GPU.
pub(crate) fn held() -> Vec<HoldersReport> {
    let devices = [
        healthy(),
        in_a_container(),
        stuck(),
        of_a_workstation(),
        reaped_by_others(),
        tearing_down(),
        orphaned(),
        busy_without_holder(),
        unknown(),
        read_a_while_ago(),
    ];
    devices.map(report).into()
}

/// A free GPU.
pub(crate) fn free(index: u32) -> HoldersReport {
    let free = DeviceHolders {
        memory_used: Value(Bytes(0)),
        ..device(index, 0, vec![monitor()])
    };
    report(free)
}

/// Bob's notebook, idle for hours, and one of carol's workers.
pub(crate) fn explanations() -> [Explanation; 2] {
    let mut idle = snapshot().processes;
    idle.retain(|process| process.pid == 51_002);
    let mut idle = idle.remove(0);
    let parent = |pid, name: &str| Ancestor {
        key: ProcessKey {
            pid,
            start_ticks: 1,
        },
        name: name.into(),
    };
    idle.parents = vec![parent(50_877, "jupyter-lab"), parent(1203, "systemd")];
    let open = Holder {
        holds: vec!["nvidia5".into(), "nvidia-uvm".into()],
        ..listed(51_002, "bob", 483)
    };
    let five = device(5, 0, vec![open.clone()]);
    let six = report(orphaned());
    let may_end = |person: &str, you| EndPermission {
        people: vec![
            person.into(),
            "group gpukill-operators".into(),
            "root".into(),
        ],
        includes_caller: you,
        never_reason: None,
    };
    let notebook = Explanation {
        at: NOW,
        pid: 51_002,
        frees: idle.memory.clone(),
        shared_with: Vec::new(),
        files_read_at: Value(NOW),
        uses: vec![(five.label(), idle)],
        holds: vec![(five.label(), open.clone(), role(&open, &five))],
        findings: vec![],
        may_end: may_end("bob", false),
        guard: Value(ruled()),
        rogue: Unsupported,
    };
    let worker = Explanation {
        at: NOW,
        pid: 60_212,
        uses: vec![],
        holds: vec![(
            six.device.label(),
            six.device.holders[2].clone(),
            six.roles[2],
        )],
        findings: vec![(6, six.findings[0].clone())],
        frees: Unsupported,
        shared_with: Vec::new(),
        files_read_at: Value(NOW),
        may_end: may_end("carol", true),
        guard: Unsupported,
        rogue: Unsupported,
    };
    [notebook, worker]
}

/// A pid that the driver lists but that does not exist.
pub(crate) fn gone() -> Explanation {
    let mut gone = process(4, 60_190, 0, "", 100, 0);
    gone.start_ticks = Failed("no such process".into());
    gone.name = Failed("no such process".into());
    gone.command = Failed("no such process".into());
    let label = device(4, 0, vec![]).label();
    Explanation {
        at: NOW,
        pid: 60_190,
        frees: gone.memory.clone(),
        shared_with: Vec::new(),
        files_read_at: Value(NOW),
        uses: vec![(label, gone)],
        holds: vec![],
        findings: vec![],
        may_end: EndPermission {
            people: vec!["root".into()],
            includes_caller: false,
            never_reason: Some("it does not exist on this host".into()),
        },
        guard: Unsupported,
        rogue: Unsupported,
    }
}
