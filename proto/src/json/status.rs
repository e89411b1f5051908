//! The JSON of `gpukillctl status`. Field names are stable; fields are only added.

use super::fields::{document, documents, map_ref};
use super::schema::plain_schemas;
use super::{FaultDocument, GuardDocument, RogueDocument, SCHEMA, fault_documents};
use crate::model::{BackendReport, BackendState, FaultCode};
use crate::reading::Reading;
use crate::status::{
    ActionCount, AlertValue, ChangedSetting, CountersReport, DaemonStatus, DecisionCount,
    DeviceEnergy, RefusalCount, Right, SettingValue, XidCount,
};
use crate::units::Timestamp;
use serde::Serialize;
use serde_json::json;

document! {
    /// The document that `gpukillctl status -o json` prints.
    StatusDocument(status: &DaemonStatus) {
        /// The version of the JSON shape, as in `list`.
        schema: u32 = SCHEMA,
        version: String = status.version.clone(),
        /// `1.0`
        protocol: String = status.protocol.to_string(),
        host: String = status.host.clone(),
        started_at: String as Timestamp = status.started_at.to_rfc3339(),
        /// The daemon's clock when it answered; ages are counted from it.
        ts: String as Timestamp = status.now.to_rfc3339(),
        uptime_seconds: u64 = status.now.since(status.started_at).as_secs(),
        /// Whether the daemon runs for one person (`gpukilld --user`).
        personal: bool = status.personal,
        /// Why the daemon ends no process for any caller.
        will_not_act: Option<String> = status.will_not_act.clone(),
        uid: u32 = status.caller.uid,
        user: Option<String> = status.caller.user.clone(),
        /// `look`, `end_own`, `end_any`, `edit_rules`.
        rights: Vec<&'static str> as Vec<Right> =
            status.caller.rights.iter().map(|right| right.name()).collect::<Vec<_>>(),
        /// A group that gives rights after the next login.
        log_in_again_for: Option<String> = status.caller.log_in_again_for.clone(),
        backends: Vec<BackendDocument> = documents(&status.backends),
        faults: Vec<FaultDocument> = fault_documents(&status.faults, |code| !code.is_alert()),
        alerts: Vec<AlertDocument> = documents(&status.alerts),
        poll_interval_ms: u64 = status.polling.interval_ms,
        set_poll_interval_ms: u64 = status.polling.set_interval_ms,
        last_poll_at: Option<String> as Option<Timestamp> = status.polling.last_at.map(Timestamp::to_rfc3339),
        polls: u64 = status.polling.polls,
        polls_late: u64 = status.polling.late,
        store_directory: String = status.store.directory.clone(),
        store_samples_bytes: u64 = status.store.samples.0,
        store_audit_bytes: u64 = status.store.audit.0,
        store_written_at: Option<String> as Option<Timestamp> = status.store.written_at.map(Timestamp::to_rfc3339),
        store_written: u64 = status.store.written,
        store_dropped: u64 = status.store.dropped,
        guard: GuardDocument = GuardDocument::from(&status.guard),
        rogue: RogueDocument = RogueDocument::from(&status.rogue),
        settings: Vec<SettingDocument> = documents(&status.settings),
        counters: CountersDocument = CountersDocument::from(&status.counters),
    }
}

document! {
    /// What has happened since the daemon started.
    CountersDocument(counters: &CountersReport) {
        actions: Vec<ActionCountDocument> = documents(&counters.actions),
        /// `null` for a caller who does not see other users.
        decisions: Option<Vec<DecisionCountDocument>> =
            map_ref(&counters.decisions, |all| -> Vec<DecisionCountDocument> { documents(all) }),
        refusals: Vec<RefusalCountDocument> = documents(&counters.refusals),
        xids: Vec<XidCountDocument> = documents(&counters.xids),
        energy: Vec<DeviceEnergyDocument> = documents(&counters.energy),
    }
}

document! {
    /// The number of actions of one kind with one result.
    plain ActionCountDocument(counted: &ActionCount) {
        kind: String = counted.kind.clone(),
        result: String = counted.result.clone(),
        count: u64 = counted.count,
    }
}

document! {
    /// The number of decisions of the guard.
    plain DecisionCountDocument(counted: &DecisionCount) {
        decision: String = counted.decision.clone(),
        count: u64 = counted.count,
    }
}

document! {
    /// The number of refusals for one reason.
    plain RefusalCountDocument(counted: &RefusalCount) {
        reason: String = counted.reason.clone(),
        count: u64 = counted.count,
    }
}

document! {
    /// The number of XID errors with one number on one device.
    plain XidCountDocument(counted: &XidCount) {
        gpu_id: Option<String> = counted.device.as_ref().map(|id| id.0.clone()),
        /// `null` for all errors beyond the number of entries that are kept.
        xid: Option<u64> = counted.xid,
        count: u64 = counted.count,
    }
}

document! {
    /// The energy that a device has drawn since its driver was loaded.
    plain DeviceEnergyDocument(energy: &DeviceEnergy) {
        gpu_id: String = energy.device.0.clone(),
        energy_j: f64 = energy.drawn.as_joules(),
    }
}

document! {
    /// A threshold that a GPU has reached.
    plain AlertDocument(alert: &AlertValue) {
        /// `GPU 3`
        part: String = alert.part.clone(),
        /// `temperature_alert`, `memory_alert`
        code: &'static str as FaultCode = alert.code.name(),
        what: String = alert.what.clone(),
        since: String as Timestamp = alert.since.to_rfc3339(),
        limit: i64 = alert.limit,
        /// The value now, rounded down.
        value: Option<i64> = alert.value,
        /// `°C`, or `%` of all memory.
        unit: String = alert.unit.clone(),
    }
}

document! {
    /// A setting that differs from its default.
    plain SettingDocument(changed: &ChangedSetting) {
        /// `audit.keep_samples`
        key: String = changed.key.clone(),
        /// `null` for a text or a list, which is withheld.
        value: Option<SettingValueDocument> = SettingValueDocument::from_setting(changed.value),
    }
}

/// A value that names no person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SettingValueDocument {
    /// A boolean.
    Truth(bool),
    /// A number; for a duration, milliseconds.
    Number(i64),
    /// A name from a fixed set.
    Name(&'static str),
}

plain_schemas! {
    SettingValueDocument => json!({ "type": ["boolean", "integer", "string"] });
}

impl SettingValueDocument {
    /// The value; `None` if it is withheld.
    pub(super) fn from_setting(value: SettingValue) -> Option<Self> {
        match value {
            SettingValue::Bool(truth) => Some(Self::Truth(truth)),
            SettingValue::Number(number) => Some(Self::Number(number)),
            SettingValue::Duration(ms) => Some(Self::Number(i64::try_from(ms).unwrap_or(i64::MAX))),
            SettingValue::Withheld => None,
        }
    }
}

document! {
    /// One backend.
    BackendDocument(backend: &BackendReport) {
        name: String = backend.name.clone(),
        /// `ready`, `starting`, `absent`, `failed`, `quiesced`.
        state: &'static str as BackendState = backend.state.name(),
        /// Why it is absent, failed or quiesced.
        why: Option<String> = match &backend.state {
            BackendState::Ready | BackendState::Starting => None,
            BackendState::Absent(why) | BackendState::Failed(_, why) => Some(why.clone()),
            BackendState::Quiesced(until) => Some(format!("until {}", until.to_rfc3339())),
        },
        since: String as Timestamp = backend.since.to_rfc3339(),
        gpus: Option<u64> = read_count(&backend.state, backend.devices.into()),
        driver: Option<String> = backend.driver.clone(),
        cuda: Option<String> = backend.cuda.clone(),
        poll_cost_us: Option<u64> = read_count(&backend.state, backend.poll_cost_us),
    }
}

/// A count that was not read is not 0.
fn read_count(state: &BackendState, count: u64) -> Reading<u64> {
    match state {
        BackendState::Ready
        | BackendState::Failed(..)
        | BackendState::Absent(_)
        | BackendState::Quiesced(_) => Reading::Value(count),
        BackendState::Starting => Reading::Failed("it has not answered yet".into()),
    }
}
