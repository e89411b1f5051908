//! Evidence of a violation before it is reported: it is rebuilt with each sample, and
//! rarely requested. Its serialized form is the reported one.

use super::super::sample::ProcessFacts;
use gpukill_proto::guard::{Evidence, EvidenceProcess, Measurement, ProcessContext, RunKey};
use gpukill_proto::rogue::Threat;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Evidence that shares the facts of the sample that it was found in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Evidence", from = "Evidence")]
pub(crate) struct LazyEvidence {
    pub(crate) measured: Option<Measurement>,
    pub(crate) since: Timestamp,
    pub(crate) runs: Vec<ObservedRun>,
    pub(crate) count: u32,
    pub(crate) unknown: u32,
    pub(crate) threat: Option<Threat>,
    pub(crate) is_service_only_warned: bool,
}

/// One run in the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedRun {
    pub(crate) run: Arc<RunKey>,
    pub(crate) facts: Arc<ProcessFacts>,
    pub(crate) gpu_index: u32,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// Percent.
    pub(crate) utilization: Option<u32>,
    /// Connections of clients to its job.
    pub(crate) clients: Option<u32>,
}

impl LazyEvidence {
    /// The evidence as it is reported.
    pub(crate) fn to_evidence(&self) -> Evidence {
        Evidence {
            measured: self.measured,
            since: self.since,
            runs: self.runs.iter().map(ObservedRun::to_reported).collect(),
            count: self.count,
            unknown: self.unknown,
            threat: self.threat,
            is_service_only_warned: self.is_service_only_warned,
        }
    }
}

impl ObservedRun {
    /// The run as it is reported.
    pub(crate) fn to_reported(&self) -> EvidenceProcess {
        let facts = &self.facts;
        EvidenceProcess {
            run: RunKey::clone(&self.run),
            gpu_index: self.gpu_index,
            owner: facts.owner.clone(),
            name: facts.name.clone(),
            memory: self.memory,
            utilization: self.utilization,
            job: facts.job.as_ref().map(|(_, shown)| shown.clone()),
            context: ProcessContext {
                unit: facts.unit.clone().flatten(),
                image: facts.image.clone().flatten(),
                network_role: facts.network.clone(),
                clients: self.clients,
            },
        }
    }
}

impl From<LazyEvidence> for Evidence {
    fn from(proof: LazyEvidence) -> Self {
        proof.to_evidence()
    }
}

impl From<Evidence> for LazyEvidence {
    fn from(evidence: Evidence) -> Self {
        Self {
            measured: evidence.measured,
            since: evidence.since,
            runs: evidence.runs.into_iter().map(ObservedRun::from).collect(),
            count: evidence.count,
            unknown: evidence.unknown,
            threat: evidence.threat,
            is_service_only_warned: evidence.is_service_only_warned,
        }
    }
}

impl From<EvidenceProcess> for ObservedRun {
    /// Restores the reported part of the process facts.
    fn from(process: EvidenceProcess) -> Self {
        let facts = ProcessFacts {
            owner: process.owner,
            name: process.name,
            job: process.job.map(|shown| (shown.clone(), shown)),
            unit: process.context.unit.map(Some),
            image: process.context.image.map(Some),
            network: process.context.network_role,
            ..ProcessFacts::default()
        };
        Self {
            run: Arc::new(process.run),
            facts: Arc::new(facts),
            gpu_index: process.gpu_index,
            memory: process.memory,
            utilization: process.utilization,
            clients: process.context.clients,
        }
    }
}
