//! `gpukillctl status --report`: a document for a bug report. It contains no names: it has typed
//! fields and fault codes, and its types hold no free text ([`Redacted`]).

mod redacted;

pub use super::status::SettingValueDocument;
pub use redacted::{
    Component, FileMode, ModelNumber, Printed, Redacted, SettingKey, Version, distribution,
};

use super::SCHEMA;
use super::fields::documents;
use crate::ProtocolVersion;
use crate::audit::ActionRecord;
use crate::guard::{GuardReport, RuleCounts};
use crate::model::{BackendReport, BackendState, Device, Fault, FaultCode, LossKind};
use crate::rogue::{Risk, RogueReport};
use crate::status::{ChangedSetting, DaemonStatus, Right, StoreReport};
use crate::units::Timestamp;
use redacted::{error_number, failed_reading, redacted, version};
use serde::Deserialize;
use std::io;

impl Redacted for RuleCounts {}
impl Redacted for SettingValueDocument {}

/// The kinds of data that a report leaves out.
pub const LEAVES_OUT: &str = "names of users, groups, hosts, processes, containers, jobs, units \
    and rules; texts of faults; command lines; labels; paths, but for the usual ones; UUIDs, \
    serial numbers and addresses; texts in settings";

redacted! {
    /// A bug report.
    ReportDocument {
        schema: u32,
        /// The client's clock.
        ts: Printed<Timestamp>,
        leaves_out: &'static str,
        client: ClientPart,
        host: HostPart,
        socket: SocketPart,
        unit: UnitPart,
        /// Why the daemon does not answer; `null` if it answers.
        failure: Option<FailurePart>,
        daemon: Option<DaemonPart>,
        /// `null` if the daemon did not list the devices.
        devices: Option<Vec<DevicePart>>,
        processes: Option<u64>,
        /// Faults of the last day, the newest first.
        recent_faults: Option<Vec<RecentPart>>,
    }

    /// The client.
    ClientPart {
        version: &'static str,
        protocol: Printed<ProtocolVersion>,
        settings: Vec<SettingPart>,
        /// The number of mistakes in the settings. With a mistake the client uses no setting.
        settings_mistakes: u64,
        rights: Vec<&'static str>,
        /// Whether the user gets more rights by logging in again.
        log_in_again: bool,
    }

    /// The host.
    HostPart {
        kernel: Version,
        architecture: &'static str,
        distribution: Option<&'static str>,
        distribution_version: Option<Version>,
        /// The version of the installed systemd.
        systemd: Option<Version>,
        /// Whether systemd is the init system.
        systemd_runs: bool,
    }

    /// The socket of the daemon.
    SocketPart {
        /// `host`, `own`, `named`.
        place: &'static str,
        /// `null` unless `place` is `host`.
        path: Option<&'static str>,
        /// `socket`, `other`, `missing`, `unreadable`.
        is: &'static str,
        /// Why the file status cannot be read.
        error: Option<Printed<io::ErrorKind>>,
        mode: Option<Printed<FileMode>>,
        /// `root`, `you`, `another`.
        owner: Option<&'static str>,
    }

    /// The systemd units.
    UnitPart {
        /// `installed`, `masked`, `none`.
        gpukilld: &'static str,
        /// Whether drop-in files of an admin change the unit.
        drop_ins: bool,
        reset_socket: &'static str,
    }

    /// Why the daemon does not answer.
    FailurePart {
        what: &'static str,
        /// The error of the kernel.
        error: Option<Printed<io::ErrorKind>>,
        /// The daemon's protocol, if it differs from the client's.
        protocol: Option<Printed<ProtocolVersion>>,
        /// A command that shows more.
        see: Option<&'static str>,
        /// The exit code.
        exit: u8,
    }
}

impl ReportDocument {
    /// The version of the format.
    pub const SCHEMA: u32 = SCHEMA;
}

/// The names of rights in JSON, as in `status`.
#[must_use]
pub fn rights(rights: &[Right]) -> Vec<&'static str> {
    rights.iter().map(|right| right.name()).collect()
}

redacted! {
    /// A setting with another value than the default.
    SettingPart(changed: &ChangedSetting) {
        key: SettingKey = SettingKey::parse(&changed.key),
        /// Durations are in milliseconds; `null` stands for a text or a list.
        value: Option<SettingValueDocument> = SettingValueDocument::from_setting(changed.value),
    }
}

redacted! {
    /// The status of the daemon.
    DaemonPart(status: &DaemonStatus) {
        version: Version = Version::parse(&status.version),
        protocol: Printed<ProtocolVersion> = Printed(status.protocol),
        started_at: Printed<Timestamp> = Printed(status.started_at),
        uptime_seconds: u64 = status.now.since(status.started_at).as_secs(),
        personal: bool = status.personal,
        /// Whether the daemon ends no process.
        will_not_act: bool = status.will_not_act.is_some(),
        settings: Vec<SettingPart> = documents(&status.settings),
        backends: Vec<BackendPart> = documents(&status.backends),
        faults: Vec<FaultPart> = status
            .faults
            .iter()
            .map(|fault| FaultPart::new(fault, status.now))
            .collect(),
        poll_interval_ms: u64 = status.polling.interval_ms,
        last_poll_at: Option<Printed<Timestamp>> = status.polling.last_at.map(Printed),
        polls: u64 = status.polling.polls,
        polls_late: u64 = status.polling.late,
        store: StorePart = StorePart::from(&status.store),
        guard: GuardPart = GuardPart::from(&status.guard),
        rogue: RoguePart = RoguePart::from(&status.rogue),
    }
}

redacted! {
    /// A backend.
    BackendPart(backend: &BackendReport) {
        name: Printed<Component> = Printed(Component::parse(&backend.name)),
        state: &'static str = backend.state.name(),
        /// Why the backend does not work.
        code: Option<FaultCode> = backend_failure(&backend.state).map(|(code, _)| code),
        error_number: Option<u16> =
            backend_failure(&backend.state).and_then(|(_, why)| error_number(why)),
        since: Printed<Timestamp> = Printed(backend.since),
        // The count is unknown, not 0, until the backend has answered.
        gpus: Option<u64> =
            (backend.state != BackendState::Starting).then_some(backend.devices.into()),
        driver: Option<Version> = version(&backend.driver),
        cuda: Option<Version> = version(&backend.cuda),
        poll_cost_us: Option<u64> =
            (backend.state != BackendState::Starting).then_some(backend.poll_cost_us),
    }
}

fn backend_failure(state: &BackendState) -> Option<(FaultCode, &str)> {
    match state {
        BackendState::Failed(code, why) => Some((*code, why.as_str())),
        BackendState::Ready
        | BackendState::Starting
        | BackendState::Absent(_)
        | BackendState::Quiesced(_) => None,
    }
}

redacted! {
    /// A fault that is present.
    FaultPart(fault: &Fault, now: Timestamp) {
        part: Printed<Component> = Printed(Component::parse(&fault.part)),
        code: FaultCode = fault.code,
        /// The failed reading.
        reading: Option<&'static str> = failed_reading(fault.code, &fault.what),
        /// The error number of NVML or of the system.
        error_number: Option<u16> = error_number(&fault.what),
        since: Printed<Timestamp> = Printed(fault.since),
        /// The age of the fault.
        seconds: u64 = now.since(fault.since).as_secs(),
    }
}

/// The recorded data of a fault besides its text.
#[derive(Deserialize)]
struct FaultRecord {
    code: FaultCode,
}

redacted! {
    /// A recorded fault, present or past.
    RecentPart(record: &ActionRecord) {
        at: Printed<Timestamp> = Printed(record.at),
        part: Printed<Component> = Printed(Component::parse(part_and_text(record).0)),
        code: Option<FaultCode> = recorded_code(record),
        reading: Option<&'static str> =
            recorded_code(record).and_then(|code| failed_reading(code, part_and_text(record).1)),
        error_number: Option<u16> = error_number(part_and_text(record).1),
        /// Whether the record is about the end of the fault.
        over: bool = record.kind == "fault_over",
        times: u64 = record.times,
    }
}

/// The part and the text of a recorded fault.
fn part_and_text(record: &ActionRecord) -> (&str, &str) {
    let what = record.what.as_deref().unwrap_or_default();
    what.split_once(": ").unwrap_or(("", what))
}

fn recorded_code(record: &ActionRecord) -> Option<FaultCode> {
    let content = record.plan.known()?;
    let content = serde_json::from_str::<FaultRecord>(content).ok()?;
    Some(content.code)
}

redacted! {
    /// The store.
    StorePart(store: &StoreReport) {
        samples_bytes: u64 = store.samples.0,
        audit_bytes: u64 = store.audit.0,
        written_at: Option<Printed<Timestamp>> = store.written_at.map(Printed),
        written: u64 = store.written,
        dropped: u64 = store.dropped,
    }
}

redacted! {
    /// The status of the guard.
    GuardPart(guard: &GuardReport) {
        mode: &'static str = guard.mode.name(),
        armed_mode: &'static str = guard.armed_mode.name(),
        rule_counts: RuleCounts = guard.rules,
        /// Whether a rule file exists.
        has_file: bool = guard.revision.is_some(),
        mistakes: u64 = guard.mistakes.len() as u64,
        file_changed: Option<bool> = guard.is_file_changed,
        evaluated_at: Option<Printed<Timestamp>> = guard.evaluated_at.map(Printed),
        dropped: u64 = guard.dropped,
        beyond: u64 = guard.overflow,
        tripped_at: Option<Printed<Timestamp>> = guard.tripped_at.map(Printed),
        open: u64 = guard.open.into(),
        would_have_ended: u64 = guard.would_have_ended.into(),
        warned_today: u64 = guard.warned_today.into(),
        ended_today: u64 = guard.ended_today.into(),
        simulated_warned_today: u64 = guard.simulated_warned_today.into(),
        simulated_ended_today: u64 = guard.simulated_ended_today.into(),
    }
}

redacted! {
    /// The status of the rogue detection.
    RoguePart(rogue: &RogueReport) {
        has_file: bool = rogue.revision.is_some(),
        mistakes: u64 = rogue.mistakes.len() as u64,
        watched: u64 = rogue.watched.into(),
        beyond: u64 = rogue.unwatched.into(),
        findings: u64 = rogue.findings.into(),
        worst: Option<&'static str> = rogue.worst.map(Risk::name),
    }
}

redacted! {
    /// A GPU.
    DevicePart(device: &Device) {
        gpu_index: u64 = device.index.into(),
        vendor: &'static str = device.vendor.name(),
        /// The numbers in the name of the model.
        model: Option<ModelNumber> =
            device.name.last_known().and_then(|name| ModelNumber::parse(name)),
        lost: bool = device.lost.as_ref().is_some_and(|it| it.kind == LossKind::Lost),
        mem_total_bytes: Option<u64> = device.memory_total.last_known().map(|bytes| bytes.0),
        instances: u64 = device.instances.len() as u64,
        pids: Option<u64> = device.process_count.last_known().copied().map(u64::from),
        last_xid: Option<u64> = device.last_xid.as_ref().and_then(|event| event.kind.xid()),
    }
}

#[cfg(test)]
pub(super) mod tests;
