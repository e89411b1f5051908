//! Records a kill: the intent before the first signal, the outcome after the last.

use super::super::planner::affected_facts;
use super::KillAuthorization;
use crate::kill::KillEnvironment;
use crate::store::{Action, ActionKind, OpenAction, log_unrecorded_end};
use gpukill_policy::kill::outcome::{KillCompletion, completion};
use gpukill_proto::json::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{KillPlan, KillReport, Stage};

/// Records the intent. When the store cannot, the intent goes to the log, and a kill that a person
/// asked for goes ahead.
pub(super) fn record_intent(
    plan: &KillPlan,
    word: &KillAuthorization<'_>,
    means: &KillEnvironment,
) -> Result<OpenAction, String> {
    let document = KillPlanDocument::from(plan);
    let act = Action {
        kind: ActionKind::Kill,
        uid: word.caller.uid,
        request: word.request_text.clone(),
        plan: serde_json::to_string(&document).unwrap_or_default(),
    };
    means.store.record_intent_about(act, affected_facts(plan))
}

pub(super) fn record_outcome(plan: &KillPlan, report: &KillReport, act: Option<OpenAction>) {
    let word = outcome_word(plan, report);
    let outcome = serde_json::to_string(&KillReportDocument::from(report)).unwrap_or_default();
    match act {
        Some(act) => act.settle(word, outcome),
        // Only the log has the intent in this case.
        None => log_unrecorded_end(ActionKind::Kill, &affected_facts(plan), word, &outcome),
    }
}

fn outcome_word(plan: &KillPlan, report: &KillReport) -> &'static str {
    match (report.stage, completion(plan, report)) {
        (Stage::Interrupted, _) => "interrupted",
        (_, KillCompletion::All) => "done",
        (_, KillCompletion::Partial) => "partly",
        (_, KillCompletion::Refused) => "refused",
        (_, KillCompletion::NothingToEnd | KillCompletion::Failed) => "failed",
    }
}
