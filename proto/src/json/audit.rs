//! The JSON of a history record.

use super::fields::{bytes, document, map_ref, mib, percent};
use crate::audit::{AuditRecord, AuditSubject};
use crate::model::{InstanceId, Owner, OwnerKind};
use crate::reading::Reading;
use crate::units::{Celsius, Milliwatts, Timestamp};

document! {
    /// One record of `gpukillctl audit -o json`.
    AuditDocument(record: &AuditRecord, subject: SubjectFields) {
        id: u64 = record.id,
        timestamp: String as Timestamp = record.at.to_rfc3339(),
        gpu_index: u32 = record.gpu_index,
        gpu_id: String = record.device.0.clone(),
        gpu_name: Option<String> = record.gpu_name.clone(),
        /// `null` in a record of the whole device.
        pid: Option<u32> = subject.pid,
        uid: Option<u32> = subject.uid,
        user: Option<String> = subject.user,
        /// The person to ask.
        owner: Option<String> = subject.owner.as_ref().map(|owner| owner.name.clone()),
        owner_uid: Option<u32> = subject.owner.as_ref().and_then(|owner| owner.uid),
        owner_kind: Option<&'static str> as Option<OwnerKind> = subject.owner.as_ref().map(|owner| owner.kind.name()),
        namespace_owner_uid: Option<u32> = subject.namespace_owner,
        process_name: Option<String> = subject.name,
        command: Option<String> = subject.command,
        memory_used_mb: Option<u64> = mib(&record.memory),
        memory_used_bytes: Option<u64> = bytes(&record.memory),
        utilization_pct: Option<u32> = percent(&record.utilization),
        temperature_c: Option<i32> = map_ref(&subject.temperature, |celsius| celsius.map(|c| c.0)),
        power_w: Option<f64> = map_ref(&subject.power, |power| power.map(Milliwatts::as_watts)),
        container: Option<String> = subject.container,
        /// The name of the job in `list`.
        job: Option<String> = subject.job,
        /// The length of the record's period, in seconds.
        covers_secs: f64 = seconds(record.covers_ms),
        /// The time for which the process held the device within the period.
        held_secs: Option<f64> = subject.held_ms.map(seconds),
        /// Client connections to its listening ports.
        connections: Option<u32> = subject.connections,
        /// The instance, if the device was divided.
        instance: Option<String> = subject.instance.map(|it| it.to_string()),
    }
}

/// The fields of a record's subject. The fields of the other kind of subject are a known
/// "none".
pub(super) struct SubjectFields {
    pid: Option<u32>,
    uid: Option<u32>,
    user: Option<String>,
    owner: Option<Owner>,
    namespace_owner: Option<u32>,
    name: Option<String>,
    command: Reading<Option<String>>,
    container: Option<String>,
    job: Option<String>,
    held_ms: Option<u64>,
    connections: Reading<Option<u32>>,
    instance: Option<InstanceId>,
    temperature: Reading<Option<Celsius>>,
    power: Reading<Option<Milliwatts>>,
}

impl From<&AuditSubject> for SubjectFields {
    fn from(subject: &AuditSubject) -> Self {
        let none = Self {
            pid: None,
            uid: None,
            user: None,
            owner: None,
            namespace_owner: None,
            name: None,
            command: Reading::Value(None),
            container: None,
            job: None,
            held_ms: None,
            connections: Reading::Value(None),
            instance: None,
            temperature: Reading::Value(None),
            power: Reading::Value(None),
        };
        match subject.clone() {
            AuditSubject::Device { temperature, power } => Self {
                temperature: temperature.map(Some),
                power: power.map(Some),
                ..none
            },
            AuditSubject::Process {
                pid,
                instance,
                uid,
                user,
                owner,
                namespace_owner,
                name,
                command,
                container,
                job,
                held_ms,
                connections,
            } => Self {
                pid: Some(pid),
                uid,
                user,
                owner,
                namespace_owner,
                name,
                command: command.map(Some),
                container,
                job,
                held_ms: Some(held_ms),
                connections: connections.map(Some),
                instance,
                ..none
            },
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

impl From<&AuditRecord> for AuditDocument {
    fn from(record: &AuditRecord) -> Self {
        Self::new(record, SubjectFields::from(&record.subject))
    }
}
