//! Metrics of the daemon: its polls, backends, faults, guard and store.

use super::counters;
use super::encoder::{Encoder, Kind, Sample};
use super::gpus::{count, from_count, seconds};
use crate::upstream::Frame;
use gpukill_proto::guard::GuardMode;
use gpukill_proto::model::{BackendReport, BackendState, Fault};
use gpukill_proto::rogue::{Risk, RogueReport};
use gpukill_proto::status::{ChangedSetting, DaemonStatus, Right, SettingValue};
use std::collections::BTreeMap;

/// Adds what the snapshot says about the daemon.
pub(super) fn encode_snapshot(encoder: &mut Encoder, frame: &Frame) {
    let snapshot = &frame.annotated.snapshot;
    encoder.family(
        "gpukill_snapshot_timestamp_seconds",
        Kind::Gauge,
        "Time of the poll that these values are from.",
        [Sample::plain(seconds(snapshot.taken_at.0))],
    );
    encoder.family(
        "gpukill_polls_total",
        Kind::Counter,
        "Polls since gpukilld started.",
        count(Some(snapshot.polls)).map(Sample::plain),
    );
    encoder.family(
        "gpukill_backend_up",
        Kind::Gauge,
        "Whether the reader of a vendor works; absent vendors have no series.",
        snapshot.backends.iter().filter_map(backend_up),
    );
    encoder.family(
        "gpukill_backend_poll_duration_seconds",
        Kind::Gauge,
        "Duration of the last reading.",
        snapshot.backends.iter().filter_map(|backend| {
            let cost = count(Some(backend.poll_cost_us))? / 1e6;
            let is_ready = backend.state == BackendState::Ready;
            is_ready.then(|| Sample::new(vec![("backend", backend.name.clone())], cost))
        }),
    );
    let is_alert = |fault: &&Fault| fault.code.is_alert();
    encoder.family(
        "gpukill_faults",
        Kind::Gauge,
        "Current faults by kind.",
        by_kind(
            snapshot.faults.iter().filter(|fault| !is_alert(fault)),
            "kind",
        ),
    );
    encoder.family(
        "gpukill_alerts",
        Kind::Gauge,
        "GPUs that have reached a threshold, by alert.",
        by_kind(snapshot.faults.iter().filter(is_alert), "alert"),
    );
}

/// Whether the daemon shows its caller the violations and the verdicts about all users. Where it
/// hides them, none would look like zero.
fn sees_all_users(rights: &[Right], settings: &[ChangedSetting]) -> bool {
    let hides_others = settings.iter().any(|setting| {
        setting.key == "access.hide_other_users" && setting.value == SettingValue::Bool(true)
    });
    let is_trusted = rights
        .iter()
        .any(|right| matches!(right, Right::EndAny | Right::EditRules));
    !hides_others || is_trusted
}

/// Whether the rogue watch has assessed the processes of the snapshot.
fn has_assessed(rogue: &RogueReport, processes: usize) -> bool {
    processes == 0 || rogue.watched > 0
}

fn backend_up(backend: &BackendReport) -> Option<Sample> {
    let is_up = match backend.state {
        BackendState::Ready => 1.0,
        BackendState::Starting | BackendState::Failed(..) | BackendState::Quiesced(_) => 0.0,
        BackendState::Absent(_) => return None,
    };
    Some(Sample::new(vec![("backend", backend.name.clone())], is_up))
}

fn by_kind<'a>(faults: impl Iterator<Item = &'a Fault>, label: &'static str) -> Vec<Sample> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in faults {
        *counts.entry(fault.code.name()).or_default() += 1;
    }
    let samples = counts.into_iter();
    samples
        .map(|(kind, faults)| Sample::new(vec![(label, kind.to_owned())], from_count(faults)))
        .collect()
}

/// Adds what the status says about the daemon, and what it says of the frame.
pub(super) fn encode_status(encoder: &mut Encoder, status: &DaemonStatus, frame: &Frame) {
    let sees_all = sees_all_users(&status.caller.rights, &status.settings);
    let processes = frame.annotated.snapshot.processes.len();
    if sees_all && has_assessed(&status.rogue, processes) {
        encoder.family(
            "gpukill_rogue_suspects",
            Kind::Gauge,
            "Suspicious processes on GPUs by risk, at most 500 in all.",
            Risk::ALL.map(|risk| {
                let all = frame.annotated.verdicts.iter();
                let of_risk = all.filter(|(_, verdict)| verdict.risk == risk).count();
                Sample::new(vec![("risk", risk.name().to_owned())], from_count(of_risk))
            }),
        );
    }
    let mut gauge = |name, help, value: Option<f64>| {
        encoder.family(name, Kind::Gauge, help, value.map(Sample::plain));
    };
    gauge(
        "gpukill_poll_interval_seconds",
        "Time from one poll to the next; longer than set while a driver answers slowly.",
        count(Some(status.polling.interval_ms)).map(|interval| interval / 1_000.0),
    );
    gauge(
        "gpukill_daemon_start_time_seconds",
        "Time at which gpukilld started, from which its counters count.",
        Some(seconds(status.started_at.0)),
    );
    gauge(
        "gpukill_guard_violations",
        "Open violations.",
        sees_all.then(|| f64::from(status.guard.open)),
    );
    gauge(
        "gpukill_guard_breaker_tripped",
        "Whether the guard ends no job until an admin resumes it.",
        Some(f64::from(u8::from(status.guard.tripped_at.is_some()))),
    );
    encoder.family(
        "gpukill_guard_mode",
        Kind::Gauge,
        "1 for the mode of the guard, 0 for the other modes.",
        [
            GuardMode::Disabled,
            GuardMode::DryRun,
            GuardMode::Soft,
            GuardMode::Enforce,
        ]
        .map(|mode| {
            let is_current = f64::from(u8::from(mode == status.guard.mode));
            Sample::new(vec![("mode", mode.name().to_owned())], is_current)
        }),
    );
    encoder.family(
        "gpukill_polls_late_total",
        Kind::Counter,
        "Polls that began late, or that a driver did not answer in time.",
        count(Some(status.polling.late)).map(Sample::plain),
    );
    encoder.family(
        "gpukill_store_size_bytes",
        Kind::Gauge,
        "Size of the store on disk.",
        [
            ("samples", status.store.samples),
            ("audit", status.store.audit),
        ]
        .into_iter()
        .filter_map(|(file, size)| {
            Some(Sample::new(
                vec![("file", file.to_owned())],
                count(Some(size.0))?,
            ))
        }),
    );
    encoder.family(
        "gpukill_store_dropped_total",
        Kind::Counter,
        "Samples that could not be stored since gpukilld started.",
        count(Some(status.store.dropped)).map(Sample::plain),
    );
    encoder.family(
        "gpukill_daemon_info",
        Kind::Gauge,
        "Version of gpukilld and of its protocol as labels; always 1.",
        [Sample::new(
            vec![
                ("version", status.version.clone()),
                ("protocol", status.protocol.to_string()),
            ],
            1.0,
        )],
    );
    counters::encode(encoder, &status.counters, frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_users_are_not_zero_violations() {
        let hidden = |value| ChangedSetting {
            key: "access.hide_other_users".into(),
            value: SettingValue::Bool(value),
        };
        let plain = [Right::Look, Right::EndOwn];
        assert!(sees_all_users(&plain, &[]));
        assert!(sees_all_users(&plain, &[hidden(false)]));
        assert!(!sees_all_users(&plain, &[hidden(true)]));
        assert!(sees_all_users(&[Right::EndAny], &[hidden(true)]));
    }

    #[test]
    fn unassessed_processes_are_not_innocent() {
        let mut rogue = RogueReport::default();
        assert!(has_assessed(&rogue, 0));
        assert!(!has_assessed(&rogue, 1));
        rogue.watched = 1;
        assert!(has_assessed(&rogue, 1));
    }
}
