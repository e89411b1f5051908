//! The JSON of `gpukillctl status`. Field names are stable; fields are only added.

use super::fields::{Field as _, Reasons};
use super::{FaultDocument, GuardDocument, RogueDocument, SCHEMA};
use crate::model::{BackendReport, BackendState};
use crate::reading::Reading;
use crate::status::{AlertValue, ChangedSetting, DaemonStatus, Right, SettingValue};
use crate::units::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// What `gpukillctl status -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct StatusDocument {
    /// The version of the JSON shape, as in `list`.
    pub schema: u32,
    pub version: String,
    /// `1.0`
    pub protocol: String,
    pub host: String,
    pub started_at: String,
    /// The daemon's clock when it answered; ages are counted from it.
    pub ts: String,
    pub uptime_seconds: u64,
    /// Whether the daemon runs for one person (`gpukilld --user`).
    pub personal: bool,
    /// Why the daemon ends no process for any caller.
    pub will_not_act: Option<String>,
    pub uid: u32,
    pub user: Option<String>,
    /// `look`, `end_own`, `end_any`, `edit_rules`.
    pub rights: Vec<&'static str>,
    /// A group that gives rights after the next login.
    pub log_in_again_for: Option<String>,
    pub backends: Vec<BackendDocument>,
    pub faults: Vec<FaultDocument>,
    pub alerts: Vec<AlertDocument>,
    pub poll_interval_ms: u64,
    pub set_poll_interval_ms: u64,
    pub last_poll_at: Option<String>,
    pub polls: u64,
    pub polls_late: u64,
    pub store_directory: String,
    pub store_samples_bytes: u64,
    pub store_audit_bytes: u64,
    pub store_written_at: Option<String>,
    pub store_written: u64,
    pub store_dropped: u64,
    pub guard: GuardDocument,
    pub rogue: RogueDocument,
    pub settings: Vec<SettingDocument>,
    /// Why fields are `null`, as in `list`.
    pub reasons: BTreeMap<&'static str, String>,
}

/// The current value of an alert, which is one of the faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct AlertDocument {
    pub part: String,
    pub what: String,
    pub limit: i64,
    /// `null` if unknown.
    pub value: Option<i64>,
    /// `°C` or `%`.
    pub unit: String,
}

impl From<&AlertValue> for AlertDocument {
    fn from(alert: &AlertValue) -> Self {
        let AlertValue {
            part,
            what,
            limit,
            value,
            unit,
        } = alert.clone();
        Self {
            part,
            what,
            limit,
            value,
            unit,
        }
    }
}

/// A setting that differs from its default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct SettingDocument {
    /// `audit.keep_samples`
    pub key: String,
    /// `null` for a text or a list, which is withheld.
    pub value: Option<SettingValueDocument>,
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

impl From<&ChangedSetting> for SettingDocument {
    fn from(changed: &ChangedSetting) -> Self {
        Self {
            key: changed.key.clone(),
            value: SettingValueDocument::from_setting(changed.value),
        }
    }
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

/// One backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct BackendDocument {
    pub name: String,
    /// `ready`, `starting`, `absent`, `failed`, `quiesced`.
    pub state: &'static str,
    /// Why it is absent, failed or quiesced.
    pub why: Option<String>,
    pub since: String,
    pub gpus: Option<u64>,
    pub driver: Option<String>,
    pub cuda: Option<String>,
    pub poll_cost_us: Option<u64>,
    pub reasons: BTreeMap<&'static str, String>,
}

impl From<&DaemonStatus> for StatusDocument {
    fn from(status: &DaemonStatus) -> Self {
        let DaemonStatus {
            version,
            protocol,
            host,
            started_at,
            now,
            caller,
            personal,
            will_not_act,
            backends,
            faults,
            alerts,
            polling,
            store,
            guard,
            rogue,
            settings,
        } = status;
        let mut reasons = Reasons::default();
        Self {
            schema: SCHEMA,
            version: version.clone(),
            protocol: protocol.to_string(),
            host: host.clone(),
            started_at: started_at.to_rfc3339(),
            ts: now.to_rfc3339(),
            uptime_seconds: now.since(*started_at).as_secs(),
            personal: *personal,
            will_not_act: will_not_act.clone(),
            uid: caller.uid,
            user: caller.user.clone().take("user", &mut reasons),
            rights: caller.rights.iter().copied().map(right_name).collect(),
            log_in_again_for: caller.log_in_again_for.clone(),
            backends: backends.iter().map(BackendDocument::from).collect(),
            faults: faults.iter().map(FaultDocument::from).collect(),
            alerts: alerts.iter().map(AlertDocument::from).collect(),
            poll_interval_ms: polling.interval_ms,
            set_poll_interval_ms: polling.set_interval_ms,
            last_poll_at: polling.last_at.map(Timestamp::to_rfc3339),
            polls: polling.polls,
            polls_late: polling.late,
            store_directory: store.directory.clone(),
            store_samples_bytes: store.samples.0,
            store_audit_bytes: store.audit.0,
            store_written_at: store.written_at.map(Timestamp::to_rfc3339),
            store_written: store.written,
            store_dropped: store.dropped,
            guard: GuardDocument::from(guard),
            rogue: RogueDocument::from(rogue),
            settings: settings.iter().map(SettingDocument::from).collect(),
            reasons: reasons.0,
        }
    }
}

impl From<&BackendReport> for BackendDocument {
    fn from(backend: &BackendReport) -> Self {
        let (state, why) = match &backend.state {
            BackendState::Ready => ("ready", None),
            BackendState::Starting => ("starting", None),
            BackendState::Absent(why) => ("absent", Some(why.clone())),
            BackendState::Failed(_, why) => ("failed", Some(why.clone())),
            BackendState::Quiesced(until) => {
                ("quiesced", Some(format!("until {}", until.to_rfc3339())))
            }
        };
        let mut reasons = Reasons::default();
        // A count that was not read is not 0.
        let read = |number: u64| match &backend.state {
            BackendState::Ready
            | BackendState::Failed(..)
            | BackendState::Absent(_)
            | BackendState::Quiesced(_) => Reading::Value(number),
            BackendState::Starting => Reading::Failed("it has not answered yet".into()),
        };
        Self {
            name: backend.name.clone(),
            state,
            why,
            since: backend.since.to_rfc3339(),
            gpus: read(u64::from(backend.devices)).take("gpus", &mut reasons),
            driver: backend.driver.clone().take("driver", &mut reasons),
            cuda: backend.cuda.clone().take("cuda", &mut reasons),
            poll_cost_us: read(backend.poll_cost_us).take("poll_cost_us", &mut reasons),
            reasons: reasons.0,
        }
    }
}

pub(super) const fn right_name(right: Right) -> &'static str {
    match right {
        Right::Look => "look",
        Right::EndOwn => "end_own",
        Right::EndAny => "end_any",
        Right::EditRules => "edit_rules",
    }
}
