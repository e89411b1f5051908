//! The text of a bug report.

use super::super::fixtures::{NOW, actions, snapshot, status, style};
use super::super::status::report::lines;
use super::{check, text};
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::json::report::{
    ClientPart, DaemonPart, DevicePart, FailurePart, FileMode, HostPart, LEAVES_OUT, Printed,
    RecentPart, ReportDocument, SettingKey, SettingPart, SettingValueDocument, SocketPart,
    UnitPart, Version, distribution, rights,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::status::{ChangedSetting, DaemonStatus, SettingValue};

fn changed(status: DaemonStatus) -> DaemonStatus {
    let changed = |key: &str, value| ChangedSetting {
        key: key.into(),
        value,
    };
    DaemonStatus {
        settings: vec![
            changed("daemon.poll_interval", SettingValue::Duration(1_000)),
            changed("access.hide_other_users", SettingValue::Bool(true)),
            changed("guard.rules", SettingValue::Withheld),
        ],
        ..status
    }
}

/// A report from a host where everything is known.
fn whole() -> ReportDocument {
    let status = changed(status());
    let recent = actions().into_iter().map(|mut record| {
        record.kind = "fault".into();
        record.what = Some("GPU 3: fan: NVML reports an unknown error (999)".into());
        record.plan = Reading::Value("{\"code\":\"reading_failed\"}".into());
        RecentPart::from(&record)
    });
    let snapshot = snapshot();
    ReportDocument {
        schema: ReportDocument::SCHEMA,
        ts: Printed(NOW),
        leaves_out: LEAVES_OUT,
        client: ClientPart {
            version: "0.1.0",
            protocol: Printed(PROTOCOL_VERSION),
            settings: vec![SettingPart {
                key: SettingKey::parse("use_colors"),
                value: Some(SettingValueDocument::Name("never")),
            }],
            settings_mistakes: 0,
            rights: rights(&status.caller.rights),
            log_in_again: true,
        },
        host: HostPart {
            kernel: Version::parse("6.8.0-51-generic"),
            architecture: "x86_64",
            distribution: Some(distribution("ubuntu")),
            distribution_version: Some(Version::parse("24.04")),
            systemd: Some(Version::parse("255")),
            systemd_runs: true,
        },
        socket: SocketPart {
            place: "host",
            path: Some("/run/gpukill/gpukilld.sock"),
            is: "socket",
            error: None,
            mode: Some(Printed(FileMode(0o666))),
            owner: Some("another"),
        },
        unit: UnitPart {
            gpukilld: "installed",
            drop_ins: true,
            reset_socket: "masked",
        },
        failure: None,
        daemon: Some(DaemonPart::from(&status)),
        devices: Some(snapshot.devices.iter().map(DevicePart::from).collect()),
        processes: Some(snapshot.processes.len() as u64),
        recent_faults: Some(recent.take(2).collect()),
    }
}

/// A report from a host without an answer of the daemon.
fn without_a_daemon() -> ReportDocument {
    ReportDocument {
        client: ClientPart {
            settings: Vec::new(),
            settings_mistakes: 2,
            rights: Vec::new(),
            log_in_again: false,
            ..whole().client
        },
        host: HostPart {
            distribution: None,
            systemd: None,
            systemd_runs: false,
            ..whole().host
        },
        socket: SocketPart {
            place: "named",
            path: None,
            is: "missing",
            error: None,
            mode: None,
            owner: None,
        },
        unit: UnitPart {
            gpukilld: "none",
            drop_ins: false,
            reset_socket: "none",
        },
        failure: Some(FailurePart {
            what: "nothing listens",
            error: None,
            protocol: None,
            see: Some("systemctl status gpukilld"),
            exit: 6,
        }),
        daemon: None,
        devices: None,
        processes: None,
        recent_faults: None,
        ..whole()
    }
}

#[test]
fn report_has_the_facts_and_names_nobody() {
    // The report is pasted, so no line is broken, whatever the width.
    let style = style(Some(60));
    check("report.txt", &text(&lines(&whole(), &style), &style));
    let alone = without_a_daemon();
    check("report-alone.txt", &text(&lines(&alone, &style), &style));
}
