//! The encoding of everything on the wire, byte by byte. A failure means that the wire has
//! changed: give [`gpukill_proto::PROTOCOL_VERSION`] a new version, run the test with
//! `GPUKILL_BLESS=1`, and commit the new golden file beside the old one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod audit;
mod calls;
mod guard;
mod holders;
mod operations;
mod rogue;
mod sample;
mod timeline;

use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::{AuditRecord, AuditSubject};
use gpukill_proto::model::{
    BackendState, DeviceId, FaultCode, InstanceId, Job, NetworkRole, Owner, OwnerKind, ProcessKey,
    Scheduler, Vendor,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::{
    ActionCount, AlertValue, CallerReport, ChangedSetting, CountersReport, DaemonStatus,
    DecisionCount, DeviceEnergy, PollingReport, RefusalCount, Right, SettingValue, StoreReport,
    XidCount,
};
use gpukill_proto::transport::codec::{decode, encode};
use gpukill_proto::transport::preface::{self, Preface};
use gpukill_proto::units::{Bytes, Celsius, Millijoules, Milliwatts, Percent, Timestamp};
use sample::{backend, container, scheduler_job, unit};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn encoding_matches_the_golden_file() {
    let mut golden = String::new();
    for (name, bytes) in labelled_encodings() {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(golden, "{name}\n  {hex}").unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("testdata/wire-{PROTOCOL_VERSION}.golden"));
    if std::env::var_os("GPUKILL_BLESS").is_some() && !file.exists() {
        std::fs::write(&file, &golden).unwrap();
    }
    let expected = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    for (actual_line, expected_line) in golden.lines().zip(expected.lines()) {
        assert_eq!(
            actual_line, expected_line,
            "the wire of protocol {PROTOCOL_VERSION} changed"
        );
    }
    assert_eq!(
        golden.lines().count(),
        expected.lines().count(),
        "the wire of protocol {PROTOCOL_VERSION} changed"
    );
}

/// One entry for each request, response and variant.
fn labelled_encodings() -> Vec<(String, Vec<u8>)> {
    let mut all = vec![
        (
            "preface welcome".to_owned(),
            Preface::new(preface::PrefaceStatus::Welcome, 65_536)
                .encode()
                .to_vec(),
        ),
        (
            "preface busy".to_owned(),
            Preface::new(preface::PrefaceStatus::Busy, 0)
                .encode()
                .to_vec(),
        ),
    ];
    for request in calls::requests() {
        all.push((
            calls::request_name(&request).to_owned(),
            encode(&request).unwrap(),
        ));
    }
    for response in calls::responses() {
        all.push((
            calls::response_name(&response).to_owned(),
            encode(&response).unwrap(),
        ));
    }
    all.extend(variants("refusal", refusals()));
    all.extend(variants("reading", readings()));
    all.extend(variants(
        "vendor",
        [
            Vendor::Nvidia,
            Vendor::Amd,
            Vendor::Intel,
            Vendor::Apple,
            Vendor::Other,
        ],
    ));
    all.extend(variants(
        "right",
        [Right::Look, Right::EndOwn, Right::EndAny, Right::EditRules],
    ));
    all.extend(variants("backend state", backend_states()));
    all.extend(variants("fault code", FaultCode::ALL.iter().copied()));
    all.extend(variants("event", sample::event_kinds()));
    all.extend(variants("job", jobs()));
    all.extend(variants(
        "network role",
        [
            NetworkRole::Private,
            NetworkRole::Service(vec![8000]),
            NetworkRole::Notebook(vec![8888]),
        ],
    ));
    all.extend(variants("owner", OWNER_KINDS));
    all.extend(variants("scheduler", SCHEDULERS));
    all.extend(variants("recovery action", sample::recovery_actions()));
    all.extend(variants("audit subject", audit_subjects()));
    all.extend(variants("timeline source", timeline::SOURCES));
    all.extend(variants("usage state", timeline::STATES));
    all.extend(variants("process state", holders::states()));
    all.extend(variants("role", holders::roles()));
    all.extend(variants("threat", rogue::THREATS));
    all.extend(variants("cause", holders::CAUSES));
    all.extend(variants("remedy", holders::remedies()));
    all.extend(variants("kill scope", operations::SCOPES));
    all.extend(variants("kill signal", operations::SIGNALS));
    all.extend(variants("planned action", operations::planned_actions()));
    all.extend(variants("stage", operations::STAGES));
    all.extend(variants("outcome", operations::outcomes()));
    all.extend(variants("unblock", operations::UNBLOCKERS));
    all.extend(variants("planned reset", operations::planned_resets()));
    all.extend(variants("reset result", operations::reset_results()));
    all
}

fn variants<T>(name: &str, values: impl IntoIterator<Item = T>) -> Vec<(String, Vec<u8>)>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let round_trip = |value: T| {
        let bytes = encode(&value).unwrap();
        assert_eq!(decode::<T>(&bytes).unwrap(), value);
        (format!("{name} {value:?}"), bytes)
    };
    values.into_iter().map(round_trip).collect()
}

// The matches below have no wildcard: a new variant does not compile until it has a sample
// here.

fn refusals() -> Vec<Refusal> {
    let all = vec![
        Refusal::Denied {
            asked: "end process 7".into(),
            ask: "alice".into(),
        },
        Refusal::Invalid("x".into()),
        Refusal::NoMatch("x".into()),
        Refusal::Busy,
        Refusal::Unavailable("x".into()),
        Refusal::TooSlow("x".into()),
        Refusal::Expired,
        Refusal::Internal,
    ];
    for refusal in &all {
        match refusal {
            Refusal::Denied { .. }
            | Refusal::Invalid(_)
            | Refusal::NoMatch(_)
            | Refusal::Busy
            | Refusal::Unavailable(_)
            | Refusal::TooSlow(_)
            | Refusal::Expired
            | Refusal::Internal => {}
        }
    }
    all
}

fn readings() -> Vec<Reading<u64>> {
    let all = vec![
        Reading::Value(300),
        Reading::Unsupported,
        Reading::Failed("x".into()),
        Reading::Stale(300, 12),
        Reading::Withheld,
    ];
    for reading in &all {
        match reading {
            Reading::Value(_)
            | Reading::Unsupported
            | Reading::Failed(_)
            | Reading::Stale(..)
            | Reading::Withheld => {}
        }
    }
    all
}

fn backend_states() -> Vec<BackendState> {
    let all = vec![
        BackendState::Ready,
        BackendState::Starting,
        BackendState::Absent("x".into()),
        BackendState::Failed(FaultCode::DriverError, "x".into()),
        BackendState::Quiesced(Timestamp(1)),
    ];
    for state in &all {
        match state {
            BackendState::Ready
            | BackendState::Starting
            | BackendState::Absent(_)
            | BackendState::Failed(..)
            | BackendState::Quiesced(_) => {}
        }
    }
    all
}

fn audit_subjects() -> [AuditSubject; 2] {
    [
        AuditSubject::Device {
            temperature: Reading::Value(Celsius(-3)),
            power: Reading::Value(Milliwatts(70_000)),
        },
        AuditSubject::Process {
            pid: 48_213,
            instance: Some(InstanceId { gpu: 2, compute: 0 }),
            uid: Some(1000),
            user: Some("alice".into()),
            owner: Some(Owner {
                name: "bob".into(),
                uid: None,
                kind: OwnerKind::Label,
            }),
            namespace_owner: Some(1000),
            name: Some("python".into()),
            command: Reading::Value("python train.py".into()),
            container: Some("docker/0123456789ab".into()),
            job: Some("slurm 1234.0".into()),
            held_ms: 9_000,
            connections: Reading::Value(3),
        },
    ]
}

fn record(subject: AuditSubject) -> AuditRecord {
    AuditRecord {
        id: 1 << 40,
        at: Timestamp(1_763_700_000_000),
        covers_ms: 10_000,
        device: DeviceId("GPU-0".into()),
        gpu_index: 3,
        gpu_name: Some("H100".into()),
        memory: Reading::Value(Bytes(1 << 36)),
        utilization: Reading::Value(Percent(97)),
        subject,
    }
}

fn status() -> DaemonStatus {
    DaemonStatus {
        version: "0.1.0".into(),
        protocol: PROTOCOL_VERSION,
        host: "box".into(),
        started_at: Timestamp(1),
        now: Timestamp(2),
        caller: CallerReport {
            uid: 1000,
            user: Reading::Value("alice".into()),
            rights: vec![Right::Look, Right::EndOwn],
            log_in_again_for: Some("gpukill-operators".into()),
        },
        personal: false,
        will_not_act: Some("x".into()),
        backends: vec![backend(BackendState::Ready)],
        faults: Vec::new(),
        alerts: vec![AlertValue {
            part: "GPU 0".into(),
            code: FaultCode::TemperatureAlert,
            what: "temperature at or above 85 °C".into(),
            since: Timestamp(1),
            limit: 85,
            value: Some(86),
            unit: "°C".into(),
        }],
        polling: PollingReport {
            interval_ms: 2_000,
            set_interval_ms: 2_000,
            last_at: Some(Timestamp(2)),
            polls: 300,
            late: 1,
        },
        store: StoreReport {
            directory: "/var/lib/gpukill".into(),
            samples: Bytes(61 << 20),
            audit: Bytes(1 << 20),
            recorded_since: Some(Timestamp(1)),
            written_at: Some(Timestamp(2)),
            written: 9,
            dropped: 0,
        },
        guard: guard::report(),
        rogue: rogue::report(),
        settings: settings(),
        counters: counters(),
    }
}

fn counters() -> CountersReport {
    CountersReport {
        actions: vec![ActionCount {
            kind: ActionCount::GUARD_END.into(),
            result: "done".into(),
            count: 3,
        }],
        decisions: Reading::Value(vec![DecisionCount {
            decision: "warned".into(),
            count: 4,
        }]),
        refusals: vec![RefusalCount {
            reason: "denied".into(),
            count: 5,
        }],
        xids: vec![XidCount {
            device: Some(DeviceId("GPU-0".into())),
            xid: Some(79),
            count: 1,
        }],
        energy: vec![DeviceEnergy {
            device: DeviceId("GPU-0".into()),
            drawn: Millijoules(7_200_000),
        }],
    }
}

fn settings() -> Vec<ChangedSetting> {
    let changed = |key: &str, value| ChangedSetting {
        key: key.into(),
        value,
    };
    vec![
        changed("access.hide_other_users", SettingValue::Bool(true)),
        changed("alerts.temp_threshold_celsius", SettingValue::Number(85)),
        changed("daemon.poll_interval", SettingValue::Duration(1_000)),
        changed("guard.rules", SettingValue::Withheld),
    ]
}

fn jobs() -> Vec<Job> {
    let all = vec![
        Job::Scheduler(scheduler_job()),
        Job::Container {
            id: container(),
            manager: Some(1000),
        },
        Job::Unit {
            unit: unit(),
            uid: 1000,
        },
        Job::Tree(ProcessKey {
            pid: 1,
            start_ticks: 2,
        }),
    ];
    for job in &all {
        match job {
            Job::Scheduler(_) | Job::Container { .. } | Job::Unit { .. } | Job::Tree(_) => {}
        }
    }
    all
}

const OWNER_KINDS: [OwnerKind; 5] = [
    OwnerKind::User,
    OwnerKind::Namespace,
    OwnerKind::Label,
    OwnerKind::Container,
    OwnerKind::Subordinate,
];

const SCHEDULERS: [Scheduler; 4] = [
    Scheduler::Slurm,
    Scheduler::Pbs,
    Scheduler::Lsf,
    Scheduler::HtCondor,
];
