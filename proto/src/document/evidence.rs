//! The JSON of what a violation is known by.

use crate::guard::{Evidence, Told};
use crate::rogue::Threat;
use crate::snapshot::NetworkRole;
use serde::Serialize;

/// What a violation is known by.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct EvidenceDocument {
    /// In the unit of the rule's kind: bytes, percent, milliseconds, processes; a risk
    /// from 1 for low to 4 for critical.
    pub value: Option<u64>,
    pub limit: Option<u64>,
    /// What it is taken for: `crypto_miner`; `null` where the rule is about another thing.
    pub threat: Option<&'static str>,
    pub since: String,
    /// How many processes it is about; not all are told of.
    pub count: u32,
    /// Of how many of these something is not known.
    pub unknown: u32,
    /// Whether it is a service, and only warned about.
    pub service_only_warned: bool,
    pub procs: Vec<ToldDocument>,
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
            service_only_warned: evidence.is_spared_service,
            procs: evidence.runs.iter().map(ToldDocument::from).collect(),
        }
    }
}

/// One process in the evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct ToldDocument {
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

impl From<&Told> for ToldDocument {
    fn from(told: &Told) -> Self {
        Self {
            pid: told.run.pid,
            start_ticks: told.run.start_ticks,
            gpu_index: told.gpu_index,
            gpu_id: told.run.device.0.clone(),
            owner: told.owner.as_ref().map(|person| person.name.clone()),
            owner_uid: told.owner.as_ref().and_then(|person| person.uid),
            process_name: told.name.clone(),
            memory_bytes: told.memory,
            utilization_pct: told.utilization,
            job: told.job.clone(),
            unit: told.context.unit.clone(),
            container_image: told.context.image.clone(),
            network_role: told.context.network_role.as_ref().map(NetworkRole::name),
            ports: told
                .context
                .network_role
                .as_ref()
                .map_or_else(Vec::new, |role| role.ports().to_vec()),
            connections: told.context.clients,
        }
    }
}
