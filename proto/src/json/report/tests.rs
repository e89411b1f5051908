//! A report contains no name, whatever names the host uses.

use super::*;
use crate::audit::ActionRecord;
use crate::guard::RulesRevision;
use crate::json::tests::page::status;
use crate::json::tests::{NOW, device};
use crate::model::{BackendState, DeviceId, Fault, FaultCode, Loss, LossKind};
use crate::reading::Reading;
use crate::status::{AlertValue, ChangedSetting, DaemonStatus, SettingValue};
use proptest::prelude::*;

/// Part of every name of [`hostile_names`], and of no word of a report.
const MARK: &str = "qz";

/// Names of people, files, hosts, containers and models.
fn hostile_names() -> impl Strategy<Value = String> {
    prop_oneof![
        "(qz|Qz|QZ)[A-Za-z]{1,9}",
        "qz[a-z]{3,9} qz[A-Z][a-z]{2,9}",
        "/home/qz[a-z]{1,9}/[0-9]{1,3}\\.qz",
        "qz[a-z]{1,9}@qz[a-z]{1,9}\\.org",
        "qz[a-z]{1,9}-[0-9a-f]{1,12}",
        "NVIDIA QZ[A-Z][A-Z0-9]{1,9} QZ[A-Z][0-9]{1,4}-QZ[A-Z]{1,3}",
        "fan and others: qz[a-z]{1,9} \\(qz[0-9]{1,3}\\)",
        "6\\.8\\.0-qz[a-z]{1,9}",
        "gpu_lost qz\"[a-z]{1,9}",
    ]
}

/// A status with this name in every text.
fn named_status(name: &str) -> DaemonStatus {
    let name = || name.to_owned();
    let mut status = status();
    status.version = name();
    status.host = name();
    status.will_not_act = Some(name());
    status.caller.user = Reading::Value(name());
    status.caller.log_in_again_for = Some(name());
    for backend in &mut status.backends {
        backend.name = name();
        backend.state = BackendState::Failed(FaultCode::DriverError, name());
        backend.driver = Reading::Value(name());
        backend.cuda = Reading::Stale(name(), 4);
    }
    status.faults = FaultCode::ALL
        .iter()
        .flat_map(|code| {
            let texts = [
                (name(), name()),
                ("store".into(), format!("{}: {}", name(), name())),
                ("GPU 0".into(), format!("fan: {}", name())),
            ];
            texts.map(|(part, what)| Fault {
                part,
                code: *code,
                what,
                since: NOW,
            })
        })
        .collect();
    status.alerts = vec![AlertValue {
        part: name(),
        code: FaultCode::TemperatureAlert,
        what: name(),
        since: NOW,
        limit: 1,
        value: None,
        unit: name(),
    }];
    status.store.directory = name();
    status.guard.file = name();
    status.guard.revision = Some(RulesRevision(name()));
    status.guard.mistakes = vec![name()];
    status.rogue.file = name();
    status.rogue.revision = Some(RulesRevision(name()));
    status.rogue.mistakes = vec![name()];
    let changed = |key: &str, value| ChangedSetting {
        key: key.into(),
        value,
    };
    status.settings = vec![
        changed(&format!("/home/{}", name()), SettingValue::Withheld),
        changed("audit.keep_samples", SettingValue::Duration(86_400_000)),
    ];
    status
}

fn record(name: &str) -> ActionRecord {
    let name = || name.to_owned();
    ActionRecord {
        id: 1,
        at: NOW,
        kind: "fault".into(),
        uid: Some(4_182),
        user: Some(name()),
        device: Some(DeviceId(name())),
        what: Some(format!("{}: {}: {}", name(), name(), name())),
        times: 2,
        result: Some(name()),
        finished_at: None,
        why: Some(name()),
        plan: Reading::Value(serde_json::json!({"code": "gpu_lost", name(): name()}).to_string()),
        outcome: Reading::Value(name()),
    }
}

/// A report of a host with this name in every text.
pub(in crate::json) fn bundle(name: &str) -> ReportDocument {
    let name = || name.to_owned();
    let mut device = device();
    device.id = DeviceId(name());
    device.name = Reading::Value(format!("{0} {0}-H100 H100-{0}", name()));
    device.pci = Reading::Value(name());
    device.vitals.serial = Reading::Value(name());
    device.lost = Some(Loss {
        since: NOW,
        reason: name(),
        kind: LossKind::Lost,
    });
    ReportDocument {
        schema: ReportDocument::SCHEMA,
        ts: Printed(NOW),
        leaves_out: LEAVES_OUT,
        client: ClientPart {
            version: "0.1.0",
            protocol: Printed(status().protocol),
            settings: vec![SettingPart {
                key: SettingKey::parse("socket"),
                value: None,
            }],
            settings_mistakes: 2,
            rights: rights(&status().caller.rights),
            log_in_again: true,
        },
        host: HostPart {
            kernel: Version::parse(&format!("6.8.0-{}", name())),
            architecture: "x86_64",
            distribution: Some(distribution(&name())),
            distribution_version: Some(Version::parse(&name())),
            systemd: Some(Version::parse(&name())),
            systemd_runs: true,
        },
        socket: SocketPart {
            place: "named",
            path: None,
            is: "socket",
            error: Some(Printed(io::ErrorKind::PermissionDenied)),
            mode: Some(Printed(FileMode(0o666))),
            owner: Some("you"),
        },
        unit: UnitPart {
            gpukilld: "none",
            drop_ins: false,
            reset_socket: "none",
        },
        failure: Some(FailurePart {
            what: "nothing listens",
            error: Some(Printed(io::ErrorKind::Other)),
            protocol: None,
            see: Some("systemctl status gpukilld"),
            exit: 6,
        }),
        daemon: Some(DaemonPart::from(&named_status(&name()))),
        devices: Some(vec![DevicePart::from(&device)]),
        processes: Some(3),
        recent_faults: Some(vec![RecentPart::from(&record(&name()))]),
    }
}

proptest! {
    #[test]
    fn has_no_names(name in hostile_names()) {
        let json = serde_json::to_string_pretty(&bundle(&name)).unwrap();
        prop_assert!(!json.to_lowercase().contains(MARK), "{name}: {json}");
        // It does not contain numbers that identify a person either.
        prop_assert!(!json.contains("4182"), "{json}");
    }
}

#[test]
fn anonymous_data_is_kept() {
    let mut status = status();
    status.version = "0.1.0".into();
    let daemon = DaemonPart::from(&status);
    assert_eq!(daemon.version.as_str(), "0.1.0");
    assert_eq!(daemon.settings.len(), 1);
    assert_eq!(daemon.backends.len(), status.backends.len());
    let device = DevicePart::from(&device());
    assert!(device.model.is_some());
    let recent = RecentPart::from(&record("alice"));
    assert_eq!(recent.code, Some(FaultCode::GpuLost));
}
