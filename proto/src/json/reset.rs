//! The JSON of `gpukillctl reset`, which recorded actions contain too.

use super::SCHEMA;
use super::fields::document;
use super::kill::{KillReportDocument, stage_name};
use crate::reset::{
    Blocker, PlannedReset, ResetOutcome, ResetPlan, ResetReport, ResetResult, ResetTarget,
    Unblocker,
};
use serde::Serialize;

document! {
    /// What `gpukillctl reset --dry-run -o json` prints.
    ResetPlanDocument(plan: &ResetPlan) {
        schema: u32 = SCHEMA,
        ts: String = plan.at.to_rfc3339(),
        /// The options of the command.
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
        planned_action: &'static str = match &target.action {
            PlannedReset::Reset => "reset",
            PlannedReset::Blocked => "blocked",
            PlannedReset::Unsupported(_) => "unsupported",
        },
        /// Why a reset is unsupported.
        why: Option<String> = match &target.action {
            PlannedReset::Unsupported(why) => Some(why.clone()),
            PlannedReset::Reset | PlannedReset::Blocked => None,
        },
        blockers: Vec<BlockerDocument> = blocker_documents(&target.blockers),
        /// Indices of GPUs that are reset together with it.
        peers: Vec<u32> = target.peers.clone(),
        notes: Vec<String> = target.notes.clone(),
    }
}

/// Something that prevents a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct BlockerDocument {
    pub pid: Option<u32>,
    pub start_ticks: Option<u64>,
    pub what: String,
    /// The remover of the blocker: `daemon`, `force` or `person`.
    pub remedy: &'static str,
}

impl From<&Blocker> for BlockerDocument {
    fn from(blocker: &Blocker) -> Self {
        Self {
            pid: blocker.process.map(|key| key.pid),
            start_ticks: blocker.process.map(|key| key.start_ticks),
            what: blocker.what.clone(),
            remedy: match blocker.remedy {
                Unblocker::Daemon => "daemon",
                Unblocker::Force => "force",
                Unblocker::Person => "person",
            },
        }
    }
}

fn blocker_documents(blockers: &[Blocker]) -> Vec<BlockerDocument> {
    blockers.iter().map(BlockerDocument::from).collect()
}

document! {
    /// What `gpukillctl reset -o json` prints at its end.
    ResetReportDocument(report: &ResetReport) {
        schema: u32 = SCHEMA,
        /// `ending` while the reset continues, `done` or `interrupted`.
        stage: &'static str = stage_name(report.stage),
        outcomes: Vec<ResetOutcomeDocument> = report
            .outcomes
            .iter()
            .map(ResetOutcomeDocument::new)
            .collect::<Vec<_>>(),
        recorded: bool = report.unrecorded.is_none(),
        /// Why the action is not in the store.
        unrecorded: Option<String> = report.unrecorded.clone(),
    }
}

impl From<&ResetReport> for ResetReportDocument {
    fn from(report: &ResetReport) -> Self {
        Self::new(report)
    }
}

document! {
    /// The outcome for one device.
    ResetOutcomeDocument(outcome: &ResetOutcome) {
        gpu_index: u32 = outcome.index,
        gpu_id: String = outcome.device.0.clone(),
        /// `reset`, `blocked`, `unsupported`, `failed` or `unreachable`.
        outcome: &'static str = match &outcome.result {
            ResetResult::Reset(_) => "reset",
            ResetResult::Blocked(_) => "blocked",
            ResetResult::Unsupported(_) => "unsupported",
            ResetResult::Failed(_) => "failed",
            ResetResult::Unreachable(_) => "unreachable",
        },
        after_ms: Option<u64> = match &outcome.result {
            ResetResult::Reset(after) => Some(*after),
            ResetResult::Blocked(_)
            | ResetResult::Unsupported(_)
            | ResetResult::Failed(_)
            | ResetResult::Unreachable(_) => None,
        },
        why: Option<String> = match &outcome.result {
            ResetResult::Unsupported(why)
            | ResetResult::Failed(why)
            | ResetResult::Unreachable(why) => Some(why.clone()),
            ResetResult::Reset(_) | ResetResult::Blocked(_) => None,
        },
        blockers: Vec<BlockerDocument> = match &outcome.result {
            ResetResult::Blocked(blockers) => blocker_documents(blockers),
            ResetResult::Reset(_)
            | ResetResult::Unsupported(_)
            | ResetResult::Failed(_)
            | ResetResult::Unreachable(_) => Vec::new(),
        },
        /// What was not restored to its previous state.
        note: Option<String> = outcome.note.clone(),
        /// The report on the processes that were ended for the reset.
        ended: Option<KillReportDocument> = outcome.ended.as_ref().map(KillReportDocument::from),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kill::Stage;
    use crate::model::{DeviceId, ProcessKey, Vendor};
    use crate::reading::Reading;
    use crate::reset::ResetRequest;
    use crate::units::Timestamp;
    use serde_json::json;

    fn blocker() -> Blocker {
        Blocker {
            process: Some(ProcessKey {
                pid: 4_711,
                start_ticks: 42,
            }),
            what: "alice's python (pid 4711)".into(),
            remedy: Unblocker::Force,
        }
    }

    pub(in crate::json) fn plan() -> ResetPlan {
        ResetPlan {
            at: Timestamp(0),
            request: ResetRequest {
                gpu: Some("0".into()),
                force: false,
                signal_timeout_ms: 5_000,
                dry_run: true,
            },
            devices: vec![ResetTarget {
                device: DeviceId("GPU-8f3c".into()),
                index: 0,
                name: Reading::Value("NVIDIA H100".into()),
                vendor: Vendor::Nvidia,
                pci: Reading::Failed("timeout".into()),
                blockers: vec![blocker()],
                peers: vec![1],
                notes: vec!["persistence mode is on".into()],
                action: PlannedReset::Blocked,
            }],
        }
    }

    pub(in crate::json) fn report() -> ResetReport {
        ResetReport {
            version: 3,
            stage: Stage::Done,
            outcomes: vec![ResetOutcome {
                device: DeviceId("GPU-8f3c".into()),
                index: 0,
                ended: None,
                result: ResetResult::Blocked(vec![blocker()]),
                note: None,
            }],
            unrecorded: None,
        }
    }

    #[test]
    fn plan_and_report_have_all_fields() {
        let blocker = json!({
            "pid": 4_711,
            "start_ticks": 42,
            "what": "alice's python (pid 4711)",
            "remedy": "force",
        });
        let expected = json!({
            "schema": 1,
            "ts": "1970-01-01T00:00:00.000Z",
            "selector": "--gpu \"0\"",
            "force": false,
            "gpus": [{
                "gpu_index": 0,
                "gpu_id": "GPU-8f3c",
                "name": "NVIDIA H100",
                "vendor": "nvidia",
                "pci": null,
                "planned_action": "blocked",
                "why": null,
                "blockers": [blocker],
                "peers": [1],
                "notes": ["persistence mode is on"],
                "reasons": {"pci": "failed: timeout"},
            }],
            "reasons": {},
        });
        let plan = serde_json::to_value(ResetPlanDocument::from(&plan()));
        assert_eq!(plan.expect("plain values"), expected);
        let expected = json!({
            "schema": 1,
            "stage": "done",
            "outcomes": [{
                "gpu_index": 0,
                "gpu_id": "GPU-8f3c",
                "outcome": "blocked",
                "after_ms": null,
                "why": null,
                "blockers": [blocker],
                "note": null,
                "ended": null,
                "reasons": {},
            }],
            "recorded": true,
            "unrecorded": null,
            "reasons": {},
        });
        let report = serde_json::to_value(ResetReportDocument::from(&report()));
        assert_eq!(report.expect("plain values"), expected);
    }
}
