//! A snapshot, a status and records like those of a real box, for tests.

use super::look::{Look, Symbols, Zone};
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::{AuditRecord, AuditSubject};
use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};
use gpukill_proto::snapshot::{
    BackendReport, BackendState, ContainerId, Device, DeviceId, Fault, GpuProcess, Loss, Snapshot,
    Use, Vendor,
};
use gpukill_proto::status::{CallerReport, PollingReport, Right, Status, StoreReport};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};

/// 2026-11-21 14:02:31.250 UTC, a Saturday.
pub(crate) const NOW: Timestamp = Timestamp(1_795_269_751_250);

/// UTF-8 without colours.
pub(crate) fn look(width: Option<usize>) -> Look {
    Look {
        width,
        color: false,
        symbols: Symbols::Unicode,
        zone: Zone::Utc,
    }
}

fn id(index: u32) -> DeviceId {
    DeviceId(format!("GPU-8f3c000{index}-1111-2222-3333-444455556666"))
}

/// Tenths of a GiB.
fn gib(tenths: u64) -> Bytes {
    Bytes((tenths << 30) / 10)
}

fn device(index: u32, used: u64, util: u32, celsius: i32, watts: u64) -> Device {
    Device {
        id: id(index),
        index,
        vendor: Vendor::Nvidia,
        name: Value("NVIDIA H100 80GB HBM3".into()),
        pci: Value(format!("0000:{:02x}:00.0", 0x1b + 8 * index)),
        memory_total: Value(gib(796)),
        memory_used: Value(gib(used)),
        memory_reserved: Value(Bytes::mib(610)),
        memory_unattributed: Value(Bytes(0)),
        memory_unified: false,
        utilization: Value(Percent(util)),
        temperature: Value(Celsius(celsius)),
        power: Value(Milliwatts(watts * 1000)),
        power_limit: Value(Milliwatts(700_000)),
        ecc_volatile: Value(0),
        process_count: Value(0),
        lost: None,
    }
}

fn process(index: u32, pid: u32, uid: u32, user: &str, used: u64, util: u32) -> GpuProcess {
    GpuProcess {
        device: id(index),
        pid,
        start_ticks: Value(u64::from(pid) * 100),
        started_at: Value(NOW.plus_seconds(-12_000)),
        first_seen: NOW.plus_seconds(-11_520),
        used_for: Use {
            compute: true,
            ..Use::default()
        },
        memory: Value(gib(used)),
        utilization: Value(Percent(util)),
        uid: Value(uid),
        user: Value(user.into()),
        name: Value("python".into()),
        executable: Value("/usr/bin/python3.11".into()),
        command: Value("python train.py --model llama-70b".into()),
        container: Value(None),
    }
}

/// Eight GPUs: busy, in containers, idle, held at nothing, unattributed, lost,
/// and one of which much is unknown.
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
    ];
    devices[2].memory_used = Stale(gib(312), 130);
    devices[2].utilization = Stale(Percent(55), 130);
    devices[2].temperature = Failed("timeout".into());
    devices[4].power = Unsupported;
    devices[4].power_limit = Unsupported;
    devices[4].ecc_volatile = Unsupported;
    devices[4].name = Value("NVIDIA RTX A6000".into());
    devices[6].memory_unattributed = Value(gib(356));
    devices[6].ecc_volatile = Value(3);
    devices[7].lost = Some(Loss {
        since: NOW.plus_seconds(-267),
        reason: "XID 79".into(),
    });
    let mut processes: Vec<GpuProcess> = (0..4)
        .map(|n| process(0, 48_213 + n, 1000, "alice", 158, 97 + n % 2))
        .collect();
    for pid in 60_001..60_013 {
        let mut worker = process(1, pid, 1002, "dana", 33, 5);
        worker.name = Value("vllm".into());
        worker.command = Value(format!("vllm serve --rank {}", pid - 60_001));
        worker.container = Value(Some(ContainerId {
            runtime: "docker".into(),
            id: "0123456789abcdef".repeat(4),
        }));
        processes.push(worker);
    }
    let mut old = process(2, 777, 1003, "erin", 310, 50);
    old.memory = Stale(gib(310), 130);
    old.utilization = Unsupported;
    old.command = Withheld;
    processes.push(old);
    let mut unnamed = process(4, 909, 4242, "", 110, 3);
    unnamed.user = Failed("no such user".into());
    unnamed.memory = Unsupported;
    unnamed.name = Value("模型服务".into());
    unnamed.command = Value("模型服务 --端口 8080".into());
    processes.push(unnamed);
    let mut idle = process(5, 51_002, 1001, "bob", 483, 0);
    idle.first_seen = NOW.plus_seconds(-34_860);
    idle.command = Value(
        "python -m ipykernel_launcher -f /home/bob/.local/share/jupyter/runtime/kernel-9a.json"
            .into(),
    );
    processes.push(idle);
    for device in &mut devices {
        let here = processes
            .iter()
            .filter(|process| process.device == device.id);
        device.process_count = Value(u32::try_from(here.count()).unwrap());
    }
    Snapshot {
        host: "gpu-box-07".into(),
        taken_at: NOW,
        tick: 524_118,
        devices,
        processes,
        backends: status().backends,
        faults: status().faults,
    }
}

fn backend(name: &str, state: BackendState) -> BackendReport {
    BackendReport {
        name: name.into(),
        state,
        since: NOW.plus_seconds(-267),
        devices: 0,
        driver: Unsupported,
        cuda: Unsupported,
        poll_cost_us: 0,
    }
}

/// Of the same box.
pub(crate) fn status() -> Status {
    let nvidia = BackendReport {
        devices: 8,
        driver: Value("580.65.06".into()),
        cuda: Value("13.0".into()),
        poll_cost_us: 4_100,
        ..backend("nvidia", BackendState::Ready)
    };
    let fault = |part: &str, what: &str| Fault {
        part: part.into(),
        what: what.into(),
        since: NOW.plus_seconds(-267),
    };
    Status {
        version: "0.1.0".into(),
        protocol: PROTOCOL_VERSION,
        host: "gpu-box-07".into(),
        started_at: NOW.plus_seconds(-12 * 86_400 - 4 * 3_600),
        now: NOW,
        caller: CallerReport {
            uid: 1000,
            user: Value("alice".into()),
            rights: vec![Right::Look, Right::EndOwn],
            log_in_again_for: Some("gpukill-operators".into()),
        },
        personal: false,
        backends: vec![
            nvidia,
            backend("amd", BackendState::Absent("no device".into())),
            backend(
                "intel",
                BackendState::Failed("cannot read /sys/class/drm: permission denied".into()),
            ),
            backend("apple", BackendState::NotBuilt),
        ],
        faults: vec![
            fault(
                "GPU 7",
                "lost (XID 79): needs a reset or a reboot; 7 others unaffected",
            ),
            fault(
                "names",
                "the name service does not answer: users are shown by number",
            ),
        ],
        polling: PollingReport {
            interval_ms: 2000,
            last_at: Some(Timestamp(NOW.0 - 400)),
            ticks: 524_118,
            late: 0,
        },
        store: StoreReport {
            directory: "/var/lib/gpukill".into(),
            samples: Bytes::mib(61),
            audit: Bytes(1_258_291),
            written_at: Some(Timestamp(NOW.0 - 300)),
            dropped: 0,
        },
    }
}

/// Newest first.
pub(crate) fn records() -> Vec<AuditRecord> {
    let record = |id, index, memory, utilization, subject| AuditRecord {
        id,
        at: NOW.plus_seconds(-10 * (9 - i64::try_from(id).unwrap_or(0))),
        device: self::id(index),
        gpu_index: index,
        gpu_name: Some("NVIDIA H100 80GB HBM3".into()),
        memory,
        utilization,
        subject,
    };
    let process =
        |pid, user: Option<&str>, name: &str, container: Option<&str>| AuditSubject::Process {
            pid,
            uid: Some(1000),
            user: user.map(Into::into),
            name: Some(name.into()),
            command: Value("python train.py".into()),
            container: container.map(Into::into),
        };
    let whole = AuditSubject::Device {
        temperature: Value(Celsius(71)),
        power: Value(Milliwatts(688_000)),
    };
    vec![
        record(9, 0, Value(gib(631)), Value(Percent(98)), whole),
        record(
            8,
            0,
            Value(gib(158)),
            Value(Percent(97)),
            process(48_213, Some("alice"), "python", None),
        ),
        record(
            7,
            1,
            Value(gib(33)),
            Unsupported,
            process(60_001, None, "vllm", Some("docker/0123456789ab")),
        ),
        record(
            6,
            11,
            Failed("timeout".into()),
            Value(Percent(0)),
            process(7, Some("模型"), "tensorboard-long", None),
        ),
    ]
}
