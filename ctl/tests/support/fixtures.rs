//! A snapshot, a status and records like those of a real host, for tests.

mod audit;
mod guard;
mod holders;
mod kill;
mod reset;
mod rogue;
mod status;
mod timeline;

pub(crate) use audit::{actions, older_records, records, runs, series, summary};
pub(crate) use guard::{
    brief, edited, guard_report, hostile, mistakes, replayed, ruled, violations, warnings,
};
pub(crate) use holders::{explanations, free, gone, held};
pub(crate) use kill::{interrupted, one_target, plan, report};
pub(crate) use reset::{held_by_one, reset_plan, reset_report, reset_without_helper};
pub(crate) use rogue::{hidden, looked, rogue_report, scan, suspected};
pub(crate) use status::status;
pub(crate) use timeline::{host_timeline, hostile_timeline, timeline};

use super::style::{OutputStyle, Symbols, Zone};
use gpukill_proto::model::{
    Ancestor, Container, ContainerId, Device, DeviceId, EventKind, GpuEvent, GpuProcess, GpuUse,
    Instance, InstanceId, Job, Loss, LossKind, Owner, OwnerKind, Pod, ProcessKey, ProcessLocation,
    RecoveryAction, RemappedRows, Scheduler, SchedulerJob, Snapshot, ThrottleReasons, Unit, Vendor,
    Vitals,
};
use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Timestamp};

/// 2026-11-21 14:02:31.250 UTC, a Saturday.
pub(crate) const NOW: Timestamp = Timestamp(1_795_269_751_250);

/// UTF-8 without colours.
pub(crate) fn style(width: Option<usize>) -> OutputStyle {
    OutputStyle {
        width,
        color: false,
        symbols: Symbols::Unicode,
        zone: Zone::Utc,
    }
}

pub(crate) fn id(index: u32) -> DeviceId {
    DeviceId(format!("GPU-8f3c000{index}-1111-2222-3333-444455556666"))
}

/// The argument is in tenths of a GiB.
fn gib(tenths: u64) -> Bytes {
    Bytes((tenths << 30) / 10)
}

fn device(index: u32, used: u64, util: u32, celsius: i32, watts: u64) -> Device {
    let mut device = Device {
        name: Value("NVIDIA H100 80GB HBM3".into()),
        pci: Value(format!("0000:{:02x}:00.0", 0x1b + 8 * index)),
        memory_total: Value(gib(796)),
        memory_used: Value(gib(used)),
        memory_reserved: Value(Bytes::mib(610)),
        memory_unattributed: Value(Bytes(0)),
        process_count: Value(0),
        ..Device::unknown(id(index), index, Vendor::Nvidia, &Unsupported)
    };
    let vitals = &mut device.vitals;
    vitals.utilization = Value(Percent(util));
    vitals.temperature = Value(Celsius(celsius));
    vitals.power = Value(Milliwatts(watts * 1000));
    vitals.power_limit = Value(Milliwatts(700_000));
    vitals.ecc_volatile = Value(0);
    device
}

/// Adds all other readings of a GPU.
fn all_vitals(known: Vitals) -> Vitals {
    Vitals {
        memory_utilization: Value(Percent(44)),
        encoder: Value(Percent(0)),
        decoder: Value(Percent(0)),
        memory_temperature: Value(Celsius(83)),
        fan: Unsupported,
        clock_graphics: Value(Megahertz(1_650)),
        clock_sm: Value(Megahertz(1_650)),
        clock_memory: Value(Megahertz(2_619)),
        clock_video: Value(Megahertz(1_410)),
        clock_sm_max: Value(Megahertz(1_980)),
        clock_memory_max: Value(Megahertz(2_619)),
        performance_state: Value(0),
        throttle: Value(ThrottleReasons::from_nvml(0x24)),
        ecc_volatile_corrected: Value(2),
        ecc_aggregate: Value(0),
        ecc_aggregate_corrected: Value(5),
        remapped_rows: Value(RemappedRows {
            correctable: 1,
            uncorrectable: 0,
            pending: false,
            failed: false,
        }),
        recovery_action: Value(RecoveryAction::None),
        persistence: Value(true),
        pcie_generation: Value(5),
        pcie_width: Value(16),
        pcie_generation_max: Value(5),
        pcie_width_max: Value(16),
        mig: Value(false),
        minor: Value(0),
        serial: Value("1652823000001".into()),
        ..known
    }
}

fn process(index: u32, pid: u32, uid: u32, user: &str, used: u64, util: u32) -> GpuProcess {
    GpuProcess {
        start_ticks: Value(u64::from(pid) * 100),
        started_at: Value(NOW.plus_seconds(-12_000)),
        used_for: GpuUse {
            compute: true,
            ..GpuUse::default()
        },
        memory: Value(gib(used)),
        utilization: Value(Percent(util)),
        uid: Value(uid),
        user: Value(user.into()),
        owner: Value(Owner {
            name: user.into(),
            uid: Some(uid),
            kind: OwnerKind::User,
        }),
        last_active: Value(Some(NOW)),
        name: Value("python".into()),
        executable: Value("/usr/bin/python3.11".into()),
        command: Value("python train.py --model llama-70b".into()),
        location: ProcessLocation {
            container: Value(None),
            unit: Value(None),
            session: Value(None),
            terminal: Value(None),
            scheduler: Value(None),
        },
        ..GpuProcess::unknown(id(index), pid, NOW.plus_seconds(-11_520), &Unsupported)
    }
}

fn container(runtime: &str, name: &str, pod: Option<Pod>) -> Option<Container> {
    Some(Container {
        manager: None,
        id: ContainerId {
            runtime: runtime.into(),
            id: "0123456789abcdef".repeat(4),
        },
        name: Value(name.into()),
        image: Unsupported,
        pod,
    })
}

/// A GPU with three instances, two of which share their memory.
fn divided(index: u32) -> Device {
    let mut device = device(index, 226, 0, 45, 210);
    device.vitals.utilization = Unsupported;
    device.vitals.mig = Value(true);
    let instance = |gpu, compute, profile: &str, total, used, count| Instance {
        id: InstanceId { gpu, compute },
        uuid: DeviceId(format!("MIG-{gpu}{compute}")),
        profile: Value(profile.into()),
        memory_total: Value(gib(total)),
        memory_used: Value(gib(used)),
        process_count: Value(count),
    };
    device.instances = vec![
        instance(1, 0, "1c.3g.40gb", 396, 165, 2),
        instance(1, 1, "2c.3g.40gb", 396, 165, 0),
        instance(2, 0, "3g.40gb", 396, 61, 1),
    ];
    device
}

/// A GPU that shares the memory of its host.
fn unified(index: u32) -> Device {
    let mut device = device(index, 412, 37, 52, 31);
    device.name = Value("NVIDIA GB10".into());
    device.memory_unified = true;
    device.memory_total = Value(gib(1197));
    device.vitals.power_limit = Unsupported;
    device.vitals.ecc_volatile = Unsupported;
    device
}

/// Ten GPUs: busy with a batch job, in containers, idle, held by an idle process, unattributed
/// and in need of a reset, lost, divided, with unified memory, and mostly unknown.
pub(crate) fn snapshot() -> Snapshot {
    let mut devices = vec![
        device(0, 631, 98, 71, 688),
        device(1, 402, 64, 63, 455),
        device(2, 312, 55, 58, 390),
        device(3, 6, 0, 34, 72),
        device(4, 120, 3, 40, 110),
        device(5, 489, 0, 41, 120),
        device(6, 356, 0, 38, 98),
        device(7, 0, 0, 0, 0),
        divided(8),
        unified(9),
    ];
    devices[2].memory_used = Stale(gib(312), 130);
    devices[2].vitals.utilization = Stale(Percent(55), 130);
    devices[2].vitals.temperature = Failed("timeout".into());
    devices[4].vitals.power = Unsupported;
    devices[4].vitals.power_limit = Unsupported;
    devices[4].vitals.ecc_volatile = Unsupported;
    devices[4].name = Value("NVIDIA RTX A6000".into());
    devices[6].memory_unattributed = Value(gib(356));
    devices[6].vitals.ecc_volatile = Value(3);
    devices[6].vitals.recovery_action = Value(RecoveryAction::Reset);
    devices[6].vitals.remapped_rows = Value(RemappedRows {
        correctable: 0,
        uncorrectable: 3,
        pending: true,
        failed: false,
    });
    devices[7].lost = Some(Loss {
        since: NOW.plus_seconds(-267),
        reason: "GPU is lost".into(),
        kind: LossKind::Lost,
    });
    devices[7].last_xid = Some(GpuEvent {
        device: Some(id(7)),
        instance: None,
        at: NOW.plus_seconds(-268),
        kind: EventKind::Xid(79),
    });
    devices[0].vitals = all_vitals(devices[0].vitals.clone());
    let mut processes: Vec<GpuProcess> = (0..4)
        .map(|n| process(0, 48_213 + n, 1000, "alice", 158, 97 + n % 2))
        .collect();
    for worker in &mut processes {
        let step = SchedulerJob {
            scheduler: Scheduler::Slurm,
            job: "1234".into(),
            step: Some("0".into()),
        };
        worker.job = Value(Job::Scheduler(step.clone()));
        worker.location.scheduler = Value(Some(step));
        worker.host_memory = Value(Bytes::mib(3_000));
        worker.cpu = Value(Percent(740));
        worker.login_uid = Value(Some(1000));
        worker.namespace_owner = Value(None);
        worker.inner_pid = Value(None);
        worker.memory_utilization = Value(Percent(41));
        worker.parents = vec![Ancestor {
            key: ProcessKey {
                pid: 48_200,
                start_ticks: 4_820_000,
            },
            name: "slurmstepd".into(),
        }];
    }
    for pid in 60_001..60_013 {
        let mut worker = process(1, pid, 1002, "dana", 33, 5);
        worker.name = Value("vllm".into());
        worker.command = Value(format!("vllm serve --rank {}", pid - 60_001));
        worker.location.container = Value(container("docker", "vllm", None));
        processes.push(worker);
    }
    let mut old = process(2, 777, 1003, "erin", 310, 50);
    old.memory = Stale(gib(310), 130);
    old.utilization = Unsupported;
    old.command = Withheld;
    old.last_active = Unsupported;
    old.location.session = Failed("timeout".into());
    processes.push(old);
    let mut unnamed = process(4, 909, 4242, "", 110, 3);
    unnamed.user = Failed("no such user".into());
    unnamed.owner = Failed("no such user".into());
    unnamed.location.terminal = Value(Some("pts/7".into()));
    unnamed.memory = Unsupported;
    unnamed.name = Value("模型服务".into());
    unnamed.command = Value("模型服务 --端口 8080".into());
    processes.push(unnamed);
    let mut idle = process(5, 51_002, 1001, "bob", 483, 0);
    idle.first_seen = Value(NOW.plus_seconds(-34_860));
    idle.command = Value(
        "python -m ipykernel_launcher -f /home/bob/.local/share/jupyter/runtime/kernel-9a.json"
            .into(),
    );
    idle.last_active = Value(Some(NOW.plus_seconds(-34_200)));
    idle.location.unit = Value(Some(Unit {
        name: "session-3.scope".into(),
        manager: None,
    }));
    idle.location.session = Value(Some("3".into()));
    idle.location.terminal = Value(Some("pts/4".into()));
    processes.push(idle);
    processes.extend(in_parts(8));
    let mut service = process(9, 1300, 998, "ollama", 412, 37);
    service.name = Value("ollama".into());
    service.command = Value("/usr/local/bin/ollama runner --model llama3".into());
    service.location.unit = Value(Some(Unit {
        name: "ollama.service".into(),
        manager: None,
    }));
    processes.push(service);
    for device in &mut devices {
        let here = processes
            .iter()
            .filter(|process| process.device == device.id);
        device.process_count = Value(u32::try_from(here.count()).unwrap());
    }
    Snapshot {
        host: "gpu-box-07".into(),
        taken_at: NOW,
        polls: 524_118,
        devices,
        processes,
        backends: status().backends,
        faults: status().faults,
    }
}

/// Two processes of a pod and one of a rootless container, each in an instance of the GPU.
fn in_parts(index: u32) -> [GpuProcess; 3] {
    let mut pod = process(index, 70_001, 0, "root", 160, 0);
    pod.instance = Some(InstanceId { gpu: 1, compute: 0 });
    pod.location.container = Value(container(
        "containerd",
        "worker",
        Some(Pod {
            uid: "7d9f".into(),
            name: Value("train-0".into()),
            namespace: Value("team".into()),
        }),
    ));
    let nobody = |name: &str, kind| Owner {
        name: name.into(),
        uid: None,
        kind,
    };
    pod.owner = Value(nobody("container worker", OwnerKind::Container));
    let mut helper = GpuProcess {
        pid: 70_002,
        memory: Value(gib(4)),
        ..pod.clone()
    };
    helper.command = Value("python loader.py".into());
    let mut rootless = process(index, 71_001, 101_000, "", 60, 0);
    rootless.instance = Some(InstanceId { gpu: 2, compute: 0 });
    rootless.user = Failed("no such user".into());
    rootless.location.container = Value(container("podman", "notebook", None));
    rootless.owner = Value(Owner {
        uid: Some(1004),
        ..nobody("frank", OwnerKind::Namespace)
    });
    [pod, helper, rootless].map(|mut process| {
        process.utilization = Unsupported;
        process.last_active = Unsupported;
        process
    })
}
