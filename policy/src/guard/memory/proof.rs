//! What a violation is known by, before it is told to anybody: it is looked at anew in
//! each bucket, and mostly nobody asks. Written down it is what is told.

use super::super::bucket::About;
use gpukill_proto::guard::{Evidence, JudgedRun, Measured, ProcessContext, Told};
use gpukill_proto::rogue::Threat;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Evidence whose names are those of the bucket that it was found in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Evidence", from = "Evidence")]
pub(crate) struct Proof {
    pub(crate) measured: Option<Measured>,
    pub(crate) since: Timestamp,
    pub(crate) runs: Vec<Seen>,
    pub(crate) count: u32,
    pub(crate) unknown: u32,
    pub(crate) threat: Option<Threat>,
    pub(crate) is_spared_service: bool,
}

/// One process in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) run: Arc<JudgedRun>,
    pub(crate) about: Arc<About>,
    pub(crate) gpu_index: u32,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// Percent.
    pub(crate) utilization: Option<u32>,
    /// Connections of others to its job.
    pub(crate) clients: Option<u32>,
}

impl Proof {
    /// For whoever asks.
    pub(crate) fn told(&self) -> Evidence {
        Evidence {
            measured: self.measured,
            since: self.since,
            runs: self.runs.iter().map(Seen::told).collect(),
            count: self.count,
            unknown: self.unknown,
            threat: self.threat,
            is_spared_service: self.is_spared_service,
        }
    }
}

impl Seen {
    /// For whoever asks.
    pub(crate) fn told(&self) -> Told {
        let about = &self.about;
        Told {
            run: JudgedRun::clone(&self.run),
            gpu_index: self.gpu_index,
            owner: about.owner.clone(),
            name: about.name.clone(),
            memory: self.memory,
            utilization: self.utilization,
            job: about.job.as_ref().map(|(_, shown)| shown.clone()),
            context: ProcessContext {
                unit: about.unit.clone().flatten(),
                image: about.image.clone().flatten(),
                network_role: about.network.clone(),
                clients: self.clients,
            },
        }
    }
}

impl From<Proof> for Evidence {
    fn from(proof: Proof) -> Self {
        proof.told()
    }
}

impl From<Evidence> for Proof {
    fn from(evidence: Evidence) -> Self {
        Self {
            measured: evidence.measured,
            since: evidence.since,
            runs: evidence.runs.into_iter().map(Seen::from).collect(),
            count: evidence.count,
            unknown: evidence.unknown,
            threat: evidence.threat,
            is_spared_service: evidence.is_spared_service,
        }
    }
}

impl From<Told> for Seen {
    /// Of what is known of the process, what was told.
    fn from(told: Told) -> Self {
        let about = About {
            owner: told.owner,
            name: told.name,
            job: told.job.map(|shown| (shown.clone(), shown)),
            unit: told.context.unit.map(Some),
            image: told.context.image.map(Some),
            network: told.context.network_role,
            ..About::default()
        };
        Self {
            run: Arc::new(told.run),
            about: Arc::new(about),
            gpu_index: told.gpu_index,
            memory: told.memory,
            utilization: told.utilization,
            clients: told.context.clients,
        }
    }
}
