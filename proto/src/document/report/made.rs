//! How the parts of a report are made of the daemon's answers.

use super::{
    BackendPart, DaemonPart, DevicePart, FaultPart, GuardPart, RecentPart, RoguePart, SettingPart,
    StorePart, Word,
};
use crate::audit::ActionRecord;
use crate::document::status::{ValueDocument, right};
use crate::guard::GuardReport;
use crate::rogue::{Risk, RogueReport};
use crate::snapshot::{BackendReport, BackendState, Device, Fault, GpuEvent, LossKind};
use crate::status::{ChangedSetting, Right, Status, StoreReport};

impl From<&ChangedSetting> for SettingPart {
    fn from(changed: &ChangedSetting) -> Self {
        Self {
            key: Word::key(&changed.key),
            value: ValueDocument::of(changed.value),
        }
    }
}

/// Rights, as `status` has them in JSON.
#[must_use]
pub fn rights(rights: &[Right]) -> Vec<&'static str> {
    rights.iter().copied().map(right).collect()
}

impl From<&Status> for DaemonPart {
    fn from(status: &Status) -> Self {
        let polling = &status.polling;
        Self {
            version: Word::version(&status.version),
            protocol: Word::version(&status.protocol.to_string()),
            started_at: Word::moment(status.started_at),
            uptime_seconds: status.now.since(status.started_at).as_secs(),
            personal: status.personal,
            will_not_act: status.will_not_act.as_deref().map(Word::sentence),
            settings: status.settings.iter().map(SettingPart::from).collect(),
            backends: status.backends.iter().map(BackendPart::from).collect(),
            faults: status.faults.iter().map(FaultPart::from).collect(),
            poll_interval_ms: polling.interval_ms,
            last_poll_at: polling.last_at.map(Word::moment),
            polls: polling.ticks,
            polls_late: polling.late,
            store: StorePart::from(&status.store),
            guard: GuardPart::from(&status.guard),
            rogue: RoguePart::from(&status.rogue),
        }
    }
}

impl From<&BackendReport> for BackendPart {
    fn from(backend: &BackendReport) -> Self {
        let (state, why) = match &backend.state {
            BackendState::Ready => ("ready", None),
            BackendState::Starting => ("starting", None),
            BackendState::Absent(why) => ("absent", Some(why)),
            BackendState::Failed(_, why) => ("failed", Some(why)),
            BackendState::Quiesced(_) => ("quiesced", None),
        };
        // What nobody has looked for is not 0.
        let has_answered = backend.state != BackendState::Starting;
        let version = |text: &String| Word::version(text);
        Self {
            name: Word::part(&backend.name),
            state,
            why: why.map(|why| Word::sentence(why)),
            since: Word::moment(backend.since),
            gpus: has_answered.then_some(backend.devices.into()),
            driver: backend.driver.last_known().map(version),
            cuda: backend.cuda.last_known().map(version),
            poll_cost_us: has_answered.then_some(backend.poll_cost_us),
        }
    }
}

impl From<&Fault> for FaultPart {
    fn from(fault: &Fault) -> Self {
        Self {
            part: Word::part(&fault.part),
            what: Word::sentence(&fault.what),
            since: Word::moment(fault.since),
        }
    }
}

impl From<&ActionRecord> for RecentPart {
    /// Of a record of kind `fault` or `fault_over`.
    fn from(record: &ActionRecord) -> Self {
        let what = record.what.as_deref().unwrap_or_default();
        let (part, what) = what.split_once(": ").unwrap_or(("", what));
        Self {
            at: Word::moment(record.at),
            part: Word::part(part),
            what: Word::sentence(what),
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
            written_at: store.written_at.map(Word::moment),
            written: store.written,
            dropped: store.dropped,
        }
    }
}

impl From<&GuardReport> for GuardPart {
    fn from(guard: &GuardReport) -> Self {
        Self {
            mode: guard.mode.name(),
            rehearses: guard.rehearses.name(),
            rule_counts: guard.rules.into(),
            has_file: guard.revision.is_some(),
            mistakes: guard.mistakes.len() as u64,
            file_changed: guard.is_file_changed,
            judged_at: guard.judged_at.map(Word::moment),
            dropped: guard.dropped,
            beyond: guard.beyond,
            tripped_at: guard.tripped_at.map(Word::moment),
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
            beyond: rogue.beyond.into(),
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
            model: device.name.last_known().map(|name| Word::model(name)),
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
