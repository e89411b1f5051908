//! A report of a box where everything has a name, and none of the names in it.

use super::*;
use crate::audit::ActionRecord;
use crate::document::tests::page::status;
use crate::document::tests::{NOW, device};
use crate::guard::RulesRevision;
use crate::reading::Reading;
use crate::snapshot::{BackendState, DeviceId, Fault, FaultCode, Loss, LossKind};
use crate::status::{AlertValue, ChangedSetting, SettingValue, Status};

/// A name that no word of ours has in it.
const NAME: &str = "qzmallory";

fn name() -> String {
    NAME.to_owned()
}

/// Every text of it is somebody's name.
fn named() -> Status {
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
    let fault = |part: &str, what: String| Fault {
        part: part.into(),
        code: FaultCode::ReadingFailed,
        what,
        since: NOW,
    };
    status.faults = vec![
        fault(NAME, name()),
        fault(
            "store",
            format!("cannot make the directory /home/{NAME}: {NAME}"),
        ),
        fault("names", format!("the name service fails: {NAME}")),
        fault("GPU 0", format!("fan: {NAME}")),
    ];
    status.alerts = vec![AlertValue {
        part: name(),
        what: name(),
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
        changed(&format!("/home/{NAME}"), SettingValue::NotTold),
        changed("audit.keep_samples", SettingValue::Length(86_400_000)),
    ];
    status
}

fn record() -> ActionRecord {
    ActionRecord {
        id: 1,
        at: NOW,
        kind: "fault".into(),
        uid: Some(4_182),
        user: Some(name()),
        device: Some(DeviceId(name())),
        what: Some(format!("{NAME}: {NAME}: {NAME}")),
        times: 2,
        word: Some(name()),
        finished_at: None,
        why: Some(name()),
        plan: Reading::Value(name()),
        outcome: Reading::Value(name()),
    }
}

/// One of everything.
pub(in crate::document) fn bundle() -> ReportDocument {
    let mut device = device();
    device.id = DeviceId(name());
    device.pci = Reading::Value(name());
    device.vitals.serial = Reading::Value(name());
    device.lost = Some(Loss {
        since: NOW,
        reason: name(),
        kind: LossKind::Lost,
    });
    let setting = SettingPart {
        key: Word::key(NAME),
        value: None,
    };
    ReportDocument {
        schema: ReportDocument::SCHEMA,
        ts: Word::moment(NOW),
        leaves_out: LEAVES_OUT,
        client: ClientPart {
            version: Word::version(NAME),
            protocol: Word::version("1.0"),
            settings: vec![SettingPart {
                key: Word::of("socket"),
                ..setting
            }],
            settings_mistakes: 2,
            rights: rights(&status().caller.rights),
            log_in_again: true,
        },
        host: HostPart {
            kernel: Word::version(&format!("6.8.0-{NAME}")),
            architecture: "x86_64",
            distribution: Some(Word::distribution(NAME)),
            distribution_version: Some(Word::release(NAME)),
            systemd: Some(Word::version(NAME)),
            systemd_runs: true,
        },
        socket: SocketPart {
            place: "named",
            path: None,
            is: Word::of("socket"),
            mode: Some(Word::mode(0o666)),
            owner: Some("you"),
        },
        unit: UnitPart {
            gpukilld: "none",
            drop_ins: false,
            reset_socket: "none",
        },
        failure: Some(FailurePart {
            what: "nothing listens",
            error: Some(Word::of_error(std::io::ErrorKind::Other)),
            protocol: None,
            see: Some("systemctl status gpukilld"),
            exit: 6,
        }),
        daemon: Some(DaemonPart::from(&named())),
        devices: Some(vec![DevicePart::from(&device)]),
        processes: Some(3),
        recent_faults: Some(vec![RecentPart::from(&record())]),
    }
}

#[test]
fn where_every_text_is_a_name_the_report_has_none() {
    let json = serde_json::to_string_pretty(&bundle()).unwrap();
    assert!(!json.contains(NAME), "{json}");
    // Numbers that name somebody are no part of it either.
    assert!(!json.contains("4182"), "{json}");
}

#[test]
fn what_names_nobody_is_told_whole() {
    let mut status = status();
    status.version = "0.1.0".into();
    let daemon = DaemonPart::from(&status);
    assert_eq!(daemon.version.as_str(), "0.1.0");
    assert_eq!(daemon.settings.len(), 1);
    assert_eq!(daemon.backends.len(), status.backends.len());
    let device = DevicePart::from(&device());
    assert!(device.model.is_some());
}
