//! The JSON of `gpukillctl reset`, which the record of acts has too.

use super::SCHEMA;
use super::fields::document;
use super::kill::{KillReportDocument, stage};
use crate::reset::{
    Blocker, ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetTarget, Unblock,
};
use serde::Serialize;

document! {
    /// What `gpukillctl reset --dry-run -o json` prints.
    ResetPlanDocument(plan: &ResetPlan) {
        schema: u32 = SCHEMA,
        ts: String = plan.at.to_rfc3339(),
        /// As options of the command.
        selector: String = plan.request.to_string(),
        force: bool = plan.request.force,
        gpus: Vec<ResetTargetDocument> = plan
            .devices
            .iter()
            .map(ResetTargetDocument::new)
            .collect::<Vec<_>>(),
    }
}

impl From<&ResetPlan> for ResetPlanDocument {
    fn from(plan: &ResetPlan) -> Self {
        Self::new(plan)
    }
}

document! {
    /// One device of a plan.
    ResetTargetDocument(target: &ResetTarget) {
        gpu_index: u32 = target.index,
        gpu_id: String = target.device.0.clone(),
        name: Option<String> = target.name.clone(),
        vendor: &'static str = target.vendor.name(),
        pci: Option<String> = target.pci.clone(),
        /// `reset`, `blocked` or `unsupported`.
        fate: &'static str = match &target.fate {
            ResetFate::Reset => "reset",
            ResetFate::Blocked => "blocked",
            ResetFate::Unsupported(_) => "unsupported",
        },
        /// Why it is unsupported.
        why: Option<String> = match &target.fate {
            ResetFate::Unsupported(why) => Some(why.clone()),
            ResetFate::Reset | ResetFate::Blocked => None,
        },
        blockers: Vec<BlockerDocument> = blockers(&target.blockers),
        /// Indices of GPUs that are reset with it.
        peers: Vec<u32> = target.peers.clone(),
        notes: Vec<String> = target.notes.clone(),
    }
}

/// What stands in the way of a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct BlockerDocument {
    pub pid: Option<u32>,
    pub start_ticks: Option<u64>,
    pub what: String,
    /// Who takes it away: `daemon`, `force` or `person`.
    pub remedy: &'static str,
}

impl From<&Blocker> for BlockerDocument {
    fn from(blocker: &Blocker) -> Self {
        Self {
            pid: blocker.process.map(|key| key.pid),
            start_ticks: blocker.process.map(|key| key.start_ticks),
            what: blocker.what.clone(),
            remedy: match blocker.remedy {
                Unblock::Daemon => "daemon",
                Unblock::Force => "force",
                Unblock::Person => "person",
            },
        }
    }
}

fn blockers(blockers: &[Blocker]) -> Vec<BlockerDocument> {
    blockers.iter().map(BlockerDocument::from).collect()
}

document! {
    /// What `gpukillctl reset -o json` prints at its end.
    ResetReportDocument(report: &ResetReport) {
        schema: u32 = SCHEMA,
        /// `ending` while it goes on, `done` or `interrupted`.
        stage: &'static str = stage(report.stage),
        outcomes: Vec<ResetOutcomeDocument> = report
            .outcomes
            .iter()
            .map(ResetOutcomeDocument::new)
            .collect::<Vec<_>>(),
        recorded: bool = report.unrecorded.is_none(),
        /// Why it is not in the store.
        unrecorded: Option<String> = report.unrecorded.clone(),
    }
}

impl From<&ResetReport> for ResetReportDocument {
    fn from(report: &ResetReport) -> Self {
        Self::new(report)
    }
}

document! {
    /// What became of one device.
    ResetOutcomeDocument(outcome: &ResetOutcome) {
        gpu_index: u32 = outcome.index,
        gpu_id: String = outcome.device.0.clone(),
        /// `reset`, `blocked`, `unsupported`, `failed` or `unreachable`.
        ending: &'static str = match &outcome.ending {
            ResetEnding::Reset(_) => "reset",
            ResetEnding::Blocked(_) => "blocked",
            ResetEnding::Unsupported(_) => "unsupported",
            ResetEnding::Failed(_) => "failed",
            ResetEnding::Unreachable(_) => "unreachable",
        },
        after_ms: Option<u64> = match &outcome.ending {
            ResetEnding::Reset(after) => Some(*after),
            ResetEnding::Blocked(_)
            | ResetEnding::Unsupported(_)
            | ResetEnding::Failed(_)
            | ResetEnding::Unreachable(_) => None,
        },
        why: Option<String> = match &outcome.ending {
            ResetEnding::Unsupported(why)
            | ResetEnding::Failed(why)
            | ResetEnding::Unreachable(why) => Some(why.clone()),
            ResetEnding::Reset(_) | ResetEnding::Blocked(_) => None,
        },
        blockers: Vec<BlockerDocument> = match &outcome.ending {
            ResetEnding::Blocked(standing) => blockers(standing),
            ResetEnding::Reset(_)
            | ResetEnding::Unsupported(_)
            | ResetEnding::Failed(_)
            | ResetEnding::Unreachable(_) => Vec::new(),
        },
        /// What did not come back as it was.
        note: Option<String> = outcome.note.clone(),
        /// What became of the processes that were ended for it.
        ended: Option<KillReportDocument> = outcome.ended.as_ref().map(KillReportDocument::from),
    }
}
