//! `gpukillctl status --report`: a document for a bug report. It contains no names: it has typed
//! fields and fault codes, and its types hold no free text ([`Redacted`]).

mod redacted;

pub use super::status::SettingValueDocument;
pub use redacted::{
    Component, FileMode, ModelNumber, Printed, Redacted, SettingKey, Version, distribution,
};

use super::status::right_name;
use super::{RuleCountsDocument, SCHEMA};
use crate::ProtocolVersion;
use crate::audit::ActionRecord;
use crate::guard::GuardReport;
use crate::model::{BackendReport, BackendState, Device, Fault, FaultCode, GpuEvent, LossKind};
use crate::rogue::{Risk, RogueReport};
use crate::status::{ChangedSetting, DaemonStatus, Right, StoreReport};
use crate::units::Timestamp;
use redacted::{error_number, failed_reading, redacted, version};
use serde::Deserialize;
use std::io;

impl Redacted for RuleCountsDocument {}
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

    /// A setting with another value than the default.
    SettingPart {
        key: SettingKey,
        /// Durations are in milliseconds; `null` stands for a text or a list.
        value: Option<SettingValueDocument>,
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

    /// The status of the daemon.
    DaemonPart {
        version: Version,
        protocol: Printed<ProtocolVersion>,
        started_at: Printed<Timestamp>,
        uptime_seconds: u64,
        personal: bool,
        /// Whether the daemon ends no process.
        will_not_act: bool,
        settings: Vec<SettingPart>,
        backends: Vec<BackendPart>,
        faults: Vec<FaultPart>,
        poll_interval_ms: u64,
        last_poll_at: Option<Printed<Timestamp>>,
        polls: u64,
        polls_late: u64,
        store: StorePart,
        guard: GuardPart,
        rogue: RoguePart,
    }

    /// A backend.
    BackendPart {
        name: Printed<Component>,
        state: &'static str,
        /// Why the backend does not work.
        code: Option<FaultCode>,
        error_number: Option<u16>,
        since: Printed<Timestamp>,
        gpus: Option<u64>,
        driver: Option<Version>,
        cuda: Option<Version>,
        poll_cost_us: Option<u64>,
    }

    /// A fault that is present.
    FaultPart {
        part: Printed<Component>,
        code: FaultCode,
        /// The failed reading.
        reading: Option<&'static str>,
        /// The error number of NVML or of the system.
        error_number: Option<u16>,
        since: Printed<Timestamp>,
        /// The age of the fault.
        seconds: u64,
    }

    /// A recorded fault, present or past.
    RecentPart {
        at: Printed<Timestamp>,
        part: Printed<Component>,
        code: Option<FaultCode>,
        reading: Option<&'static str>,
        error_number: Option<u16>,
        /// Whether the record is about the end of the fault.
        over: bool,
        times: u64,
    }

    /// The store.
    StorePart {
        samples_bytes: u64,
        audit_bytes: u64,
        written_at: Option<Printed<Timestamp>>,
        written: u64,
        dropped: u64,
    }

    /// The status of the guard.
    GuardPart {
        mode: &'static str,
        armed_mode: &'static str,
        rule_counts: RuleCountsDocument,
        /// Whether a rule file exists.
        has_file: bool,
        mistakes: u64,
        file_changed: Option<bool>,
        evaluated_at: Option<Printed<Timestamp>>,
        dropped: u64,
        beyond: u64,
        tripped_at: Option<Printed<Timestamp>>,
        open: u64,
        would_have_ended: u64,
        warned_today: u64,
        ended_today: u64,
        simulated_warned_today: u64,
        simulated_ended_today: u64,
    }

    /// The status of the rogue detection.
    RoguePart {
        has_file: bool,
        mistakes: u64,
        watched: u64,
        beyond: u64,
        findings: u64,
        worst: Option<&'static str>,
    }

    /// A GPU.
    DevicePart {
        gpu_index: u64,
        vendor: &'static str,
        /// The numbers in the name of the model.
        model: Option<ModelNumber>,
        lost: bool,
        mem_total_bytes: Option<u64>,
        instances: u64,
        pids: Option<u64>,
        last_xid: Option<u64>,
    }
}

impl ReportDocument {
    /// The version of the format.
    pub const SCHEMA: u32 = SCHEMA;
}

/// The names of rights in JSON, as in `status`.
#[must_use]
pub fn rights(rights: &[Right]) -> Vec<&'static str> {
    rights.iter().copied().map(right_name).collect()
}

impl From<&ChangedSetting> for SettingPart {
    fn from(changed: &ChangedSetting) -> Self {
        Self {
            key: SettingKey::parse(&changed.key),
            value: SettingValueDocument::from_setting(changed.value),
        }
    }
}

impl From<&DaemonStatus> for DaemonPart {
    fn from(status: &DaemonStatus) -> Self {
        let polling = &status.polling;
        Self {
            version: Version::parse(&status.version),
            protocol: Printed(status.protocol),
            started_at: Printed(status.started_at),
            uptime_seconds: status.now.since(status.started_at).as_secs(),
            personal: status.personal,
            will_not_act: status.will_not_act.is_some(),
            settings: status.settings.iter().map(SettingPart::from).collect(),
            backends: status.backends.iter().map(BackendPart::from).collect(),
            faults: status
                .faults
                .iter()
                .map(|fault| FaultPart::new(fault, status.now))
                .collect(),
            poll_interval_ms: polling.interval_ms,
            last_poll_at: polling.last_at.map(Printed),
            polls: polling.polls,
            polls_late: polling.late,
            store: StorePart::from(&status.store),
            guard: GuardPart::from(&status.guard),
            rogue: RoguePart::from(&status.rogue),
        }
    }
}

impl From<&BackendReport> for BackendPart {
    fn from(backend: &BackendReport) -> Self {
        let (state, failure) = match &backend.state {
            BackendState::Ready => ("ready", None),
            BackendState::Starting => ("starting", None),
            BackendState::Absent(_) => ("absent", None),
            BackendState::Failed(code, why) => ("failed", Some((*code, error_number(why)))),
            BackendState::Quiesced(_) => ("quiesced", None),
        };
        // The count is unknown, not 0, until the backend has answered.
        let has_answered = backend.state != BackendState::Starting;
        Self {
            name: Printed(Component::parse(&backend.name)),
            state,
            code: failure.map(|(code, _)| code),
            error_number: failure.and_then(|(_, number)| number),
            since: Printed(backend.since),
            gpus: has_answered.then_some(backend.devices.into()),
            driver: version(&backend.driver),
            cuda: version(&backend.cuda),
            poll_cost_us: has_answered.then_some(backend.poll_cost_us),
        }
    }
}

impl FaultPart {
    fn new(fault: &Fault, now: Timestamp) -> Self {
        Self {
            part: Printed(Component::parse(&fault.part)),
            code: fault.code,
            reading: failed_reading(fault.code, &fault.what),
            error_number: error_number(&fault.what),
            since: Printed(fault.since),
            seconds: now.since(fault.since).as_secs(),
        }
    }
}

/// The recorded data of a fault besides its text.
#[derive(Deserialize)]
struct FaultRecord {
    code: FaultCode,
}

impl From<&ActionRecord> for RecentPart {
    /// Converts a record of kind `fault` or `fault_over`.
    fn from(record: &ActionRecord) -> Self {
        let what = record.what.as_deref().unwrap_or_default();
        let (part, what) = what.split_once(": ").unwrap_or(("", what));
        let content = record.plan.known();
        let content = content.and_then(|json| serde_json::from_str::<FaultRecord>(json).ok());
        let code = content.map(|fault| fault.code);
        Self {
            at: Printed(record.at),
            part: Printed(Component::parse(part)),
            code,
            reading: code.and_then(|code| failed_reading(code, what)),
            error_number: error_number(what),
            over: record.kind == "fault_over",
            times: record.times,
        }
    }
}

impl From<&StoreReport> for StorePart {
    fn from(store: &StoreReport) -> Self {
        Self {
            samples_bytes: store.samples.0,
            audit_bytes: store.audit.0,
            written_at: store.written_at.map(Printed),
            written: store.written,
            dropped: store.dropped,
        }
    }
}

impl From<&GuardReport> for GuardPart {
    fn from(guard: &GuardReport) -> Self {
        Self {
            mode: guard.mode.name(),
            armed_mode: guard.armed_mode.name(),
            rule_counts: guard.rules.into(),
            has_file: guard.revision.is_some(),
            mistakes: guard.mistakes.len() as u64,
            file_changed: guard.is_file_changed,
            evaluated_at: guard.evaluated_at.map(Printed),
            dropped: guard.dropped,
            beyond: guard.overflow,
            tripped_at: guard.tripped_at.map(Printed),
            open: guard.open.into(),
            would_have_ended: guard.would_have_ended.into(),
            warned_today: guard.warned_today.into(),
            ended_today: guard.ended_today.into(),
            simulated_warned_today: guard.simulated_warned_today.into(),
            simulated_ended_today: guard.simulated_ended_today.into(),
        }
    }
}

impl From<&RogueReport> for RoguePart {
    fn from(rogue: &RogueReport) -> Self {
        Self {
            has_file: rogue.revision.is_some(),
            mistakes: rogue.mistakes.len() as u64,
            watched: rogue.watched.into(),
            beyond: rogue.unwatched.into(),
            findings: rogue.findings.into(),
            worst: rogue.worst.map(Risk::name),
        }
    }
}

impl From<&Device> for DevicePart {
    fn from(device: &Device) -> Self {
        let xid = |event: &GpuEvent| event.kind.xid();
        Self {
            gpu_index: device.index.into(),
            vendor: device.vendor.name(),
            model: device
                .name
                .last_known()
                .and_then(|name| ModelNumber::parse(name)),
            lost: device
                .lost
                .as_ref()
                .is_some_and(|it| it.kind == LossKind::Lost),
            mem_total_bytes: device.memory_total.last_known().map(|bytes| bytes.0),
            instances: device.instances.len() as u64,
            pids: device.process_count.last_known().copied().map(u64::from),
            last_xid: device.last_xid.as_ref().and_then(xid),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
