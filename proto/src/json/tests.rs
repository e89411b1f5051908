//! The fields of documents, with values and without.

mod holders;
pub(super) mod page;
mod schemas;

use super::*;
use crate::model::{
    Ancestor, BackendReport, BackendState, Container, ContainerId, Device, DeviceId, EventKind,
    GpuEvent, GpuProcess, GpuUse, Instance, InstanceId, Job, Loss, LossKind, NetworkRole, Owner,
    OwnerKind, Pod, ProcessKey, RecoveryAction, RemappedRows, RetiredPages, Scheduler,
    SchedulerJob, ThrottleReasons, Unit, Vendor, Vitals,
};
use crate::reading::Reading::{Failed, Stale, Unsupported, Value};
use crate::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Rpm, Timestamp};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const NOW: Timestamp = Timestamp(1_795_269_751_250);
const INSTANCE: InstanceId = InstanceId { gpu: 2, compute: 0 };

fn parent() -> ProcessKey {
    ProcessKey {
        pid: 48_000,
        start_ticks: 7_000,
    }
}

/// Each reading has a value of its own, so that no field can stand for another.
fn vitals() -> Vitals {
    Vitals {
        utilization: Value(Percent(1)),
        memory_utilization: Value(Percent(2)),
        encoder: Value(Percent(3)),
        decoder: Value(Percent(4)),
        temperature: Value(Celsius(5)),
        memory_temperature: Value(Celsius(6)),
        hotspot_temperature: Value(Celsius(28)),
        fan_speed: Value(Rpm(29)),
        bad_pages: Value(30),
        gtt_total: Value(Bytes(31)),
        gtt_used: Value(Bytes(32)),
        suspended: Value(false),
        compute_partition: Value("CPX".into()),
        memory_partition: Value("NPS4".into()),
        power: Value(Milliwatts(7_500)),
        power_limit: Value(Milliwatts(8_000)),
        fan: Value(Percent(9)),
        clock_graphics: Value(Megahertz(10)),
        clock_sm: Value(Megahertz(11)),
        clock_memory: Value(Megahertz(12)),
        clock_video: Value(Megahertz(13)),
        clock_sm_max: Value(Megahertz(14)),
        clock_memory_max: Value(Megahertz(15)),
        performance_state: Value(0),
        throttle: Value(ThrottleReasons::from_nvml(0x48)),
        ecc_volatile: Value(16),
        ecc_volatile_corrected: Value(17),
        ecc_aggregate: Value(18),
        ecc_aggregate_corrected: Value(19),
        remapped_rows: Value(RemappedRows {
            correctable: 20,
            uncorrectable: 21,
            pending: true,
            failed: false,
        }),
        retired_pages: Value(RetiredPages {
            single_bit: 22,
            double_bit: 23,
            pending: true,
        }),
        recovery_action: Value(RecoveryAction::DrainAndReset),
        persistence: Value(true),
        pcie_generation: Value(24),
        pcie_width: Value(25),
        pcie_generation_max: Value(26),
        pcie_width_max: Value(27),
        mig: Value(true),
        minor: Value(28),
        serial: Value("1652823000001".into()),
    }
}

pub(super) fn device() -> Device {
    Device {
        id: DeviceId("GPU-0".into()),
        index: 3,
        vendor: Vendor::Nvidia,
        name: Value("NVIDIA H100".into()),
        pci: Value("0000:1b:00.0".into()),
        memory_total: Value(Bytes::mib(80)),
        memory_used: Value(Bytes::mib(60)),
        memory_reserved: Value(Bytes(600)),
        memory_unattributed: Value(Bytes(500)),
        memory_unified: false,
        vitals: vitals(),
        instances: vec![Instance {
            id: INSTANCE,
            uuid: DeviceId("MIG-0".into()),
            profile: Value("3g.40gb".into()),
            memory_total: Value(Bytes(40)),
            memory_used: Failed("timeout".into()),
            process_count: Value(1),
        }],
        process_count: Value(1),
        last_xid: Some(GpuEvent {
            device: Some(DeviceId("GPU-0".into())),
            instance: None,
            at: NOW,
            kind: EventKind::Xid(79),
        }),
        lost: Some(Loss {
            since: NOW,
            reason: "GPU is lost".into(),
            kind: LossKind::Lost,
        }),
    }
}

fn process() -> GpuProcess {
    let mut process = GpuProcess {
        instance: Some(INSTANCE),
        start_ticks: Value(9_000),
        started_at: Value(NOW.plus_seconds(-5_400)),
        used_for: GpuUse {
            compute: true,
            graphics: false,
            mps: true,
        },
        memory: Value(Bytes::mib(50)),
        utilization: Value(Percent(1)),
        memory_utilization: Value(Percent(2)),
        encoder: Value(Percent(3)),
        decoder: Value(Percent(4)),
        last_active: Value(Some(NOW.plus_seconds(-60))),
        uid: Value(101_000),
        user: Value("101000".into()),
        owner: Value(Owner {
            name: "alice".into(),
            uid: Some(1000),
            kind: OwnerKind::Namespace,
        }),
        login_uid: Value(Some(1001)),
        login_user: Value(Some("ann".into())),
        namespace_owner: Value(Some(1002)),
        name_is_trusted: Value(false),
        name: Value("python".into()),
        executable: Value("/usr/bin/python3".into()),
        command: Value("python train.py".into()),
        inner_pid: Value(Some(7)),
        job: Value(Job::Tree(parent())),
        parents: vec![Ancestor {
            key: parent(),
            name: "torchrun".into(),
        }],
        network_role: Value(NetworkRole::Service(vec![8000])),
        connections: Value(3),
        host_memory: Value(Bytes(2_000)),
        cpu: Value(Percent(740)),
        ..GpuProcess::unknown(device().id, 48_213, NOW.plus_seconds(-5_000), &Unsupported)
    };
    process.location.container = Value(Some(Container {
        manager: Some(1004),
        id: ContainerId {
            runtime: "docker".into(),
            id: "0123456789abcdef".repeat(4),
        },
        name: Value("train".into()),
        image: Value("pytorch:24.1".into()),
        pod: Some(Pod {
            uid: "0a1b-2c3d".into(),
            name: Value("train-0".into()),
            namespace: Value("team".into()),
        }),
    }));
    process.location.unit = Value(Some(Unit {
        name: "train.service".into(),
        manager: Some(1003),
    }));
    process.location.session = Value(Some("3".into()));
    process.location.terminal = Value(Some("pts/4".into()));
    process.location.scheduler = Value(Some(SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "1234".into(),
        step: Some("0".into()),
    }));
    process
}

fn snapshot(device: Device, process: GpuProcess) -> Snapshot {
    Snapshot {
        host: "box".into(),
        taken_at: NOW,
        polls: 7,
        devices: vec![device],
        processes: vec![process],
        backends: vec![BackendReport {
            name: "nvidia".into(),
            state: BackendState::Quiesced(NOW),
            since: NOW,
            devices: 1,
            driver: Value("580".into()),
            cuda: Value("13.0".into()),
            poll_cost_us: 9,
        }],
        faults: vec![
            Fault {
                part: "names".into(),
                code: FaultCode::NameServiceFailed,
                what: "slow".into(),
                since: NOW,
            },
            Fault {
                part: "GPU 3".into(),
                code: FaultCode::TemperatureAlert,
                what: "temperature at or above 85 °C".into(),
                since: NOW,
            },
        ],
    }
}

#[test]
fn alert_is_no_fault() {
    let list = list_document(device(), process());
    let parts = |name: &str| list[name].as_array().unwrap().iter().map(|it| &it["part"]);
    assert!(parts("faults").eq(["names"]), "{list}");
    assert!(parts("alerts").eq(["GPU 3"]), "{list}");
}

fn list_document(device: Device, process: GpuProcess) -> Json {
    let list = ListDocument::new(
        &snapshot(device, process),
        &page::guard_summary(),
        &page::verdict_summaries(),
    );
    serde_json::to_value(list).unwrap()
}

fn parse_json(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

#[test]
fn gpu_has_all_fields() {
    let mut list = list_document(device(), process());
    let mut gpu = list["gpus"][0].take();
    assert_eq!(gpu["top_proc"].take(), list["procs"][0]);
    assert_eq!(
        gpu,
        parse_json(
            r#"{
    "gpu_index": 3, "id": "GPU-0", "pci": "0000:1b:00.0", "name": "NVIDIA H100",
    "vendor": "nvidia", "state": "lost", "lost_since": "2026-11-21T14:02:31.250Z",
    "lost_reason": "GPU is lost", "serial": "1652823000001", "minor": 28,
    "mem_used_mb": 60, "mem_total_mb": 80,
    "mem_used_bytes": 62914560, "mem_total_bytes": 83886080,
    "mem_reserved_bytes": 600, "mem_unattributed_bytes": 500, "mem_unified": false,
    "util_pct": 1, "mem_util_pct": 2, "encoder_util_pct": 3, "decoder_util_pct": 4,
    "temp_c": 5, "mem_temp_c": 6, "hotspot_temp_c": 28, "fan_rpm": 29, "power_w": 7.5, "power_limit_w": 8.0, "fan_pct": 9,
    "clock_graphics_mhz": 10, "clock_sm_mhz": 11, "clock_mem_mhz": 12,
    "clock_video_mhz": 13, "clock_sm_max_mhz": 14, "clock_mem_max_mhz": 15,
    "performance_state": 0, "throttle_reasons": ["hw_slowdown", "hw_thermal"],
    "ecc_volatile": 16, "ecc_volatile_corrected": 17,
    "ecc_aggregate": 18, "ecc_aggregate_corrected": 19,
    "remapped_rows": {
        "correctable": 20, "uncorrectable": 21, "pending": true, "failed": false
    },
    "retired_pages": { "single_bit": 22, "double_bit": 23, "pending": true },
    "bad_pages": 30, "gtt_total_bytes": 31, "gtt_used_bytes": 32,
    "recovery_action": "drain_and_reset",
    "last_xid": { "xid": 79, "at": "2026-11-21T14:02:31.250Z" },
    "suspended": false, "compute_partition": "CPX", "memory_partition": "NPS4",
    "persistence_mode": true, "pcie_gen": 24, "pcie_width": 25,
    "pcie_gen_max": 26, "pcie_width_max": 27, "mig_mode": true,
    "instances": [{
        "gpu_instance": 2, "compute_instance": 0, "uuid": "MIG-0", "profile": "3g.40gb",
        "mem_total_bytes": 40, "mem_used_bytes": null, "pids": 1,
        "reasons": { "mem_used_bytes": "failed: timeout" }
    }],
    "pids": 1, "top_proc": null, "reasons": {}
}"#
        )
    );
}

#[test]
fn process_has_all_fields() {
    assert_eq!(
        list_document(device(), process())["procs"][0],
        parse_json(
            r#"{
    "gpu_index": 3, "gpu_id": "GPU-0", "gpu_instance": 2, "compute_instance": 0,
    "pid": 48213, "uid": 101000, "user": "101000",
    "proc_name": "python", "executable": "/usr/bin/python3", "command": "python train.py",
    "used_mem_mb": 50, "used_mem_bytes": 52428800,
    "util_pct": 1, "mem_util_pct": 2, "encoder_util_pct": 3, "decoder_util_pct": 4,
    "last_active_at": "2026-11-21T14:01:31.250Z",
    "start_time": "1h 30m", "started_at": "2026-11-21T12:32:31.250Z", "start_ticks": 9000,
    "first_seen": "2026-11-21T12:39:11.250Z", "used_for": ["compute", "mps"],
        "ended_at": null,
    "host_mem_bytes": 2000, "cpu_pct": 740, "network_role": "service", "ports": [8000], "connections": 3,
    "owner": "alice", "owner_uid": 1000, "owner_kind": "namespace",
    "login_uid": 1001, "login_user": "ann", "namespace_owner_uid": 1002, "inner_pid": 7, "container": "docker/0123456789ab",
    "container_id": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "container_name": "train", "container_image": "pytorch:24.1",
    "container_runtime": "docker", "container_manager_uid": 1004,
    "pod": "train-0", "pod_namespace": "team", "pod_uid": "0a1b-2c3d",
    "unit": "train.service", "unit_manager_uid": 1003, "session": "3", "terminal": "pts/4",
    "scheduler": "slurm", "scheduler_job": "1234", "scheduler_step": "0",
    "job": "tree 48000", "job_id": "tree 48000 7000", "job_kind": "tree",
    "parents": [{ "pid": 48000, "start_ticks": 7000, "name": "torchrun" }],
    "rogue": { "risk": "critical", "threat": "crypto_miner" }, "rules": [{
        "rule": "user alice: memory", "source": "user alice", "kind": "memory",
        "mode": "dry-run", "deadline": "1970-01-01T00:10:00.000Z",
        "would_have_ended_at": null, "sole": true }], "reasons": {}
}"#
        )
    );
}

/// The fields that are `null`, and the reasons.
fn null_fields(document: &Json) -> (BTreeSet<&String>, BTreeMap<&String, &Json>) {
    let fields = document.as_object().unwrap().iter();
    let nulls = fields.filter(|(_, value)| value.is_null());
    let reasons = document["reasons"].as_object().unwrap();
    (
        nulls.map(|(field, _)| field).collect(),
        reasons.iter().collect(),
    )
}

#[test]
fn unknown_is_null_with_a_reason() {
    let why = Failed("timeout".into());
    let DeviceId(id) = device().id;
    let unknown_device = Device::unknown(DeviceId(id), 0, Vendor::Nvidia, &why);
    let unknown_process = GpuProcess::unknown(device().id, 7, NOW, &why);
    let list = list_document(unknown_device, unknown_process);
    for (document, none) in [
        (
            &list["gpus"][0],
            &["last_xid", "lost_reason", "lost_since"][..],
        ),
        (
            &list["procs"][0],
            &["compute_instance", "gpu_instance", "ended_at"],
        ),
    ] {
        let (mut nulls, reasons) = null_fields(document);
        nulls.retain(|field| !none.contains(&field.as_str()));
        assert_eq!(nulls, reasons.keys().copied().collect());
        assert!(reasons.values().all(|why| *why == "failed: timeout"));
    }

    let mut ended = process();
    ended.start_ticks = Stale(9_000, 6);
    let row = &list_document(device(), ended)["procs"][0];
    assert_eq!(row["start_ticks"], 9_000);
    assert_eq!(row["ended_at"], Timestamp(NOW.0 - 6_000).to_rfc3339());
    assert_eq!(row["owner"], "alice");

    let mut alone = process();
    alone.instance = None;
    alone.last_active = Value(None);
    alone.login_uid = Value(None);
    alone.login_user = Value(None);
    alone.namespace_owner = Value(None);
    alone.inner_pid = Value(None);
    alone.location = crate::model::ProcessLocation {
        container: Value(None),
        unit: Value(None),
        session: Value(None),
        terminal: Value(None),
        scheduler: Value(None),
    };
    alone.owner = Value(Owner {
        name: "container web01".into(),
        uid: None,
        kind: OwnerKind::Container,
    });
    let list = list_document(device(), alone);
    let (nulls, reasons) = null_fields(&list["procs"][0]);
    assert_eq!(reasons, BTreeMap::new());
    assert_eq!(
        nulls.into_iter().collect::<Vec<_>>(),
        [
            "compute_instance",
            "container",
            "container_id",
            "container_image",
            "container_manager_uid",
            "container_name",
            "container_runtime",
            "ended_at",
            "gpu_instance",
            "inner_pid",
            "last_active_at",
            "login_uid",
            "login_user",
            "namespace_owner_uid",
            "owner_uid",
            "pod",
            "pod_namespace",
            "pod_uid",
            "scheduler",
            "scheduler_job",
            "scheduler_step",
            "session",
            "terminal",
            "unit",
            "unit_manager_uid",
        ]
    );
}

#[test]
fn stale_container_makes_fields_stale() {
    let mut process = process();
    let Value(Some(mut container)) = process.location.container else {
        panic!("the sample is in a container");
    };
    container.image = Unsupported;
    process.location.container = Stale(Some(container), 12);
    let list = list_document(device(), process);
    let (_, reasons) = null_fields(&list["procs"][0]);
    let reasons = reasons.iter().map(|(field, why)| format!("{field} {why}"));
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [
            "container \"stale: 12 s\"",
            "container_id \"stale: 12 s\"",
            "container_image \"unsupported\"",
            "container_manager_uid \"stale: 12 s\"",
            "container_name \"stale: 12 s\"",
            "container_runtime \"stale: 12 s\"",
            "pod \"stale: 12 s\"",
            "pod_namespace \"stale: 12 s\"",
            "pod_uid \"stale: 12 s\"",
        ]
    );
}
