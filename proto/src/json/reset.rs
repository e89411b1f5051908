//! The JSON of `gpukillctl reset`, which recorded actions contain too.

use super::SCHEMA;
use super::fields::{document, documents};
use super::kill::KillReportDocument;
use crate::kill::Stage;
use crate::model::Vendor;
use crate::reset::{
    Blocker, PlannedReset, ResetOutcome, ResetPlan, ResetReport, ResetResult, ResetTarget,
    Unblocker,
};
use crate::units::Timestamp;

document! {
    /// The document that `gpukillctl reset --dry-run -o json` prints.
    ResetPlanDocument(plan: &ResetPlan) {
        schema: u32 = SCHEMA,
        ts: String as Timestamp = plan.at.to_rfc3339(),
        /// The options of the command.
        selector: String = plan.request.to_string(),
        force: bool = plan.request.force,
        gpus: Vec<ResetTargetDocument> = documents(&plan.devices),
    }
}

document! {
    /// One device of a plan.
    ResetTargetDocument(target: &ResetTarget) {
        gpu_index: u32 = target.index,
        gpu_id: String = target.device.0.clone(),
        name: Option<String> = target.name.clone(),
        vendor: &'static str as Vendor = target.vendor.name(),
        pci: Option<String> = target.pci.clone(),
        /// `reset`, `blocked` or `unsupported`.
        planned_action: &'static str as PlannedReset = target.action.name(),
        /// Why a reset is unsupported.
        why: Option<String> = match &target.action {
            PlannedReset::Unsupported(why) => Some(why.clone()),
            PlannedReset::Reset | PlannedReset::Blocked => None,
        },
        blockers: Vec<BlockerDocument> = documents(&target.blockers),
        /// Indices of GPUs that are reset together with it.
        peers: Vec<u32> = target.peers.clone(),
        notes: Vec<String> = target.notes.clone(),
    }
}

document! {
    /// Something that prevents a reset.
    plain BlockerDocument(blocker: &Blocker) {
        pid: Option<u32> = blocker.process.map(|key| key.pid),
        start_ticks: Option<u64> = blocker.process.map(|key| key.start_ticks),
        what: String = blocker.what.clone(),
        /// The remover of the blocker: `daemon`, `force` or `person`.
        remedy: &'static str as Unblocker = blocker.remedy.name(),
    }
}

document! {
    /// The document that `gpukillctl reset -o json` prints at its end.
    ResetReportDocument(report: &ResetReport) {
        schema: u32 = SCHEMA,
        /// `ending` while the reset continues, `done` or `interrupted`.
        stage: &'static str as Stage = report.stage.name(),
        outcomes: Vec<ResetOutcomeDocument> = documents(&report.outcomes),
        recorded: bool = report.unrecorded.is_none(),
        /// Why the action is not in the store.
        unrecorded: Option<String> = report.unrecorded.clone(),
    }
}

document! {
    /// The outcome for one device.
    ResetOutcomeDocument(outcome: &ResetOutcome) {
        gpu_index: u32 = outcome.index,
        gpu_id: String = outcome.device.0.clone(),
        /// `reset`, `blocked`, `unsupported`, `failed` or `unreachable`.
        outcome: &'static str as ResetResult = outcome.result.name(),
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
            ResetResult::Blocked(blockers) => documents(blockers),
            ResetResult::Reset(_)
            | ResetResult::Unsupported(_)
            | ResetResult::Failed(_)
            | ResetResult::Unreachable(_) => Vec::new(),
        },
        /// The state that was not restored.
        note: Option<String> = outcome.note.clone(),
        /// The report on the processes that were ended for the reset.
        ended: Option<KillReportDocument> = outcome.ended.as_ref().map(KillReportDocument::from),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::{DeviceId, ProcessKey};
    use crate::reading::Reading;
    use crate::reset::ResetRequest;
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
