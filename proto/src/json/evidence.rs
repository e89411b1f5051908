//! The JSON of the evidence for a violation.

use crate::guard::{Evidence, EvidenceProcess};
use crate::model::NetworkRole;
use crate::rogue::Threat;
use serde::Serialize;

/// The evidence for a violation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct EvidenceDocument {
    /// In the unit of the rule's kind: bytes, percent, milliseconds, processes; for a risk,
    /// from 1 for low to 4 for critical.
    pub value: Option<u64>,
    pub limit: Option<u64>,
    /// The class of threat: `crypto_miner`; `null` if the rule is not about threats.
    pub threat: Option<&'static str>,
    pub since: String,
    /// The number of processes involved; `procs` may be shorter.
    pub count: u32,
    /// The number of these processes with an unknown fact.
    pub unknown: u32,
    /// Whether the job is a service and is only warned about.
    pub service_only_warned: bool,
    pub procs: Vec<EvidenceProcessDocument>,
}

impl From<&Evidence> for EvidenceDocument {
    fn from(evidence: &Evidence) -> Self {
        Self {
            value: evidence.measured.map(|it| it.value),
            limit: evidence.measured.map(|it| it.limit),
            threat: evidence.threat.map(Threat::name),
            since: evidence.since.to_rfc3339(),
            count: evidence.count,
            unknown: evidence.unknown,
            service_only_warned: evidence.is_service_only_warned,
            procs: evidence
                .runs
                .iter()
                .map(EvidenceProcessDocument::from)
                .collect(),
        }
    }
}

/// One process in the evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct EvidenceProcessDocument {
    pub pid: u32,
    pub start_ticks: u64,
    pub gpu_index: u32,
    pub gpu_id: String,
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    pub process_name: Option<String>,
    pub memory_bytes: Option<u64>,
    pub utilization_pct: Option<u32>,
    pub job: Option<String>,
    pub unit: Option<String>,
    pub container_image: Option<String>,
    pub network_role: Option<&'static str>,
    pub ports: Vec<u16>,
    pub connections: Option<u32>,
}

impl From<&EvidenceProcess> for EvidenceProcessDocument {
    fn from(process: &EvidenceProcess) -> Self {
        Self {
            pid: process.run.pid,
            start_ticks: process.run.start_ticks,
            gpu_index: process.gpu_index,
            gpu_id: process.run.device.0.clone(),
            owner: process.owner.as_ref().map(|person| person.name.clone()),
            owner_uid: process.owner.as_ref().and_then(|person| person.uid),
            process_name: process.name.clone(),
            memory_bytes: process.memory,
            utilization_pct: process.utilization,
            job: process.job.clone(),
            unit: process.context.unit.clone(),
            container_image: process.context.image.clone(),
            network_role: process.context.network_role.as_ref().map(NetworkRole::name),
            ports: process
                .context
                .network_role
                .as_ref()
                .map_or_else(Vec::new, |role| role.ports().to_vec()),
            connections: process.context.clients,
        }
    }
}
