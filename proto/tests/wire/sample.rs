//! A sample snapshot, with something in every field.

use gpukill_proto::model::{
    Ancestor, BackendReport, BackendState, Container, ContainerId, Device, DeviceId, EventKind,
    Fault, FaultCode, GpuEvent, GpuProcess, GpuUse, Instance, InstanceId, Job, Loss, LossKind,
    NetworkRole, Owner, OwnerKind, Pod, ProcessKey, ProcessLocation, RecoveryAction, RemappedRows,
    RetiredPages, Scheduler, SchedulerJob, Snapshot, ThrottleReasons, Unit, Vendor, Vitals,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Timestamp};

pub(super) fn snapshot() -> Snapshot {
    Snapshot {
        host: "box".into(),
        taken_at: Timestamp(1_763_700_000_000),
        polls: 300,
        devices: vec![Device {
            id: DeviceId("GPU-0".into()),
            index: 0,
            vendor: Vendor::Nvidia,
            name: Reading::Value("H100".into()),
            pci: Reading::Value("0000:1b:00.0".into()),
            memory_total: Reading::Value(Bytes(80 << 30)),
            memory_used: Reading::Value(Bytes(60 << 30)),
            memory_reserved: Reading::Unsupported,
            memory_unattributed: Reading::Failed("x".into()),
            memory_unified: false,
            vitals: vitals(),
            instances: vec![Instance {
                id: INSTANCE,
                uuid: DeviceId("MIG-0".into()),
                profile: Reading::Value("3g.40gb".into()),
                memory_total: Reading::Value(Bytes(40 << 30)),
                memory_used: Reading::Value(Bytes(11 << 30)),
                process_count: Reading::Value(1),
            }],
            process_count: Reading::Value(1),
            last_xid: Some(event(EventKind::Xid(79))),
            lost: Some(Loss {
                since: Timestamp(1),
                reason: "x".into(),
                kind: LossKind::Lost,
            }),
        }],
        processes: vec![GpuProcess {
            device: DeviceId("GPU-0".into()),
            instance: Some(INSTANCE),
            pid: 48_213,
            start_ticks: Reading::Value(987_654),
            started_at: Reading::Value(Timestamp(1)),
            first_seen: Reading::Value(Timestamp(2)),
            used_for: GpuUse {
                compute: true,
                graphics: false,
                mps: true,
            },
            memory: Reading::Value(Bytes(60 << 30)),
            utilization: Reading::Value(Percent(97)),
            memory_utilization: Reading::Value(Percent(40)),
            encoder: Reading::Value(Percent(1)),
            decoder: Reading::Value(Percent(2)),
            last_active: Reading::Value(Some(Timestamp(3))),
            uid: Reading::Value(1000),
            user: Reading::Value("alice".into()),
            owner: Reading::Value(Owner {
                name: "alice".into(),
                uid: Some(1000),
                kind: OwnerKind::User,
            }),
            login_uid: Reading::Value(Some(1000)),
            login_user: Reading::Value(Some("alice".into())),
            namespace_owner: Reading::Value(None),
            name_is_trusted: Reading::Value(true),
            name: Reading::Value("python".into()),
            executable: Reading::Value("/usr/bin/python3".into()),
            command: Reading::Withheld,
            inner_pid: Reading::Value(Some(7)),
            location: place(),
            job: Reading::Value(Job::Tree(ProcessKey {
                pid: 48_000,
                start_ticks: 987_000,
            })),
            parents: vec![Ancestor {
                key: ProcessKey {
                    pid: 48_000,
                    start_ticks: 987_000,
                },
                name: "torchrun".into(),
            }],
            network_role: Reading::Value(NetworkRole::Service(vec![8000])),
            connections: Reading::Value(2),
            host_memory: Reading::Value(Bytes(2 << 30)),
            cpu: Reading::Value(Percent(740)),
        }],
        backends: super::backend_states().into_iter().map(backend).collect(),
        faults: vec![Fault {
            part: "store".into(),
            code: FaultCode::DiskFull,
            what: "x".into(),
            since: Timestamp(1),
        }],
    }
}

pub(super) fn backend(state: BackendState) -> BackendReport {
    BackendReport {
        name: "nvidia".into(),
        state,
        since: Timestamp(1),
        devices: 8,
        driver: Reading::Value("580.65.06".into()),
        cuda: Reading::Value("13.0".into()),
        poll_cost_us: 4_100,
    }
}

const INSTANCE: InstanceId = InstanceId { gpu: 2, compute: 0 };

fn vitals() -> Vitals {
    let unknown = Vitals::unknown(&Reading::Unsupported);
    Vitals {
        utilization: Reading::Value(Percent(98)),
        temperature: Reading::Stale(Celsius(71), 12),
        power: Reading::Value(Milliwatts(688_000)),
        clock_sm: Reading::Value(Megahertz(1980)),
        throttle: Reading::Value(ThrottleReasons::from_nvml(4)),
        ecc_volatile: Reading::Value(0),
        remapped_rows: Reading::Value(RemappedRows {
            correctable: 1,
            uncorrectable: 2,
            pending: true,
            failed: false,
        }),
        retired_pages: Reading::Value(RetiredPages {
            single_bit: 1,
            double_bit: 2,
            pending: true,
        }),
        recovery_action: Reading::Value(RecoveryAction::Reset),
        mig: Reading::Value(true),
        serial: Reading::Failed("x".into()),
        ..unknown
    }
}

fn place() -> ProcessLocation {
    ProcessLocation {
        container: Reading::Value(Some(Container {
            id: container(),
            manager: None,
            name: Reading::Value("train".into()),
            image: Reading::Unsupported,
            pod: Some(Pod {
                uid: "1-2".into(),
                name: Reading::Value("train-0".into()),
                namespace: Reading::Value("team".into()),
            }),
        })),
        unit: Reading::Value(Some(unit())),
        session: Reading::Value(Some("3".into())),
        terminal: Reading::Value(None),
        scheduler: Reading::Value(Some(scheduler_job())),
    }
}

pub(super) fn container() -> ContainerId {
    ContainerId {
        runtime: "docker".into(),
        id: "ab".into(),
    }
}

pub(super) fn unit() -> Unit {
    Unit {
        name: "train.service".into(),
        manager: Some(1000),
    }
}

pub(super) fn scheduler_job() -> SchedulerJob {
    SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "1234".into(),
        step: Some("0".into()),
    }
}

fn event(kind: EventKind) -> GpuEvent {
    GpuEvent {
        device: Some(DeviceId("GPU-0".into())),
        instance: None,
        at: Timestamp(1),
        kind,
    }
}

pub(super) fn recovery_actions() -> Vec<RecoveryAction> {
    let all = vec![
        RecoveryAction::None,
        RecoveryAction::Reset,
        RecoveryAction::Reboot,
        RecoveryAction::DrainPeers,
        RecoveryAction::DrainAndReset,
        RecoveryAction::RecoverImex,
        RecoveryAction::Other(77),
    ];
    for action in &all {
        match action {
            RecoveryAction::None
            | RecoveryAction::Reset
            | RecoveryAction::Reboot
            | RecoveryAction::DrainPeers
            | RecoveryAction::DrainAndReset
            | RecoveryAction::RecoverImex
            | RecoveryAction::Other(_) => {}
        }
    }
    all
}

pub(super) fn event_kinds() -> Vec<EventKind> {
    let all = vec![
        EventKind::Xid(79),
        EventKind::SingleBitEcc,
        EventKind::DoubleBitEcc,
        EventKind::SingleBitEccStorm,
        EventKind::MemoryRetired,
        EventKind::MemoryRetirementFailed,
        EventKind::NonFatalPoison,
        EventKind::FatalPoison,
        EventKind::MigChange,
        EventKind::Unavailable,
        EventKind::RecoveryAction,
        EventKind::Gone,
        EventKind::Returned,
        EventKind::Other(1 << 40),
    ];
    for kind in &all {
        match kind {
            EventKind::Xid(_)
            | EventKind::SingleBitEcc
            | EventKind::DoubleBitEcc
            | EventKind::SingleBitEccStorm
            | EventKind::MemoryRetired
            | EventKind::MemoryRetirementFailed
            | EventKind::NonFatalPoison
            | EventKind::FatalPoison
            | EventKind::MigChange
            | EventKind::Unavailable
            | EventKind::RecoveryAction
            | EventKind::Gone
            | EventKind::Returned
            | EventKind::Other(_) => {}
        }
    }
    all
}
