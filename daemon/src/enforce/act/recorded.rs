//! What the record has of a kill: its intent before the first signal, and how it went.

use super::super::planning::about;
use super::Word;
use crate::audit::{Act, ActKind, OpenAct, tell_unrecorded_end};
use crate::enforce::Means;
use gpukill_policy::kill::success::{Success, success};
use gpukill_proto::document::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{KillPlan, KillReport, Stage};

/// Records what is about to be done. When the store cannot, it stands in the log,
/// and a person's kill goes ahead.
pub(super) fn intend(plan: &KillPlan, word: &Word<'_>, means: &Means) -> Result<OpenAct, String> {
    let document = KillPlanDocument::from(plan);
    let act = Act {
        kind: ActKind::Kill,
        uid: word.caller.uid,
        asked: word.asked.clone(),
        plan: serde_json::to_string(&document).unwrap_or_default(),
    };
    means.store.intend_about(act, about(plan))
}

/// Records how it went.
pub(super) fn settle(plan: &KillPlan, report: &KillReport, act: Option<OpenAct>) {
    let word = word(plan, report);
    let outcome = serde_json::to_string(&KillReportDocument::from(report)).unwrap_or_default();
    match act {
        Some(act) => act.settle(word, outcome),
        // The log alone has what it was meant to do, too.
        None => tell_unrecorded_end(ActKind::Kill, &about(plan), word, &outcome),
    }
}

/// How it went, in a word.
fn word(plan: &KillPlan, report: &KillReport) -> &'static str {
    match (report.stage, success(plan, report)) {
        (Stage::Interrupted, _) => "interrupted",
        (_, Success::All) => "done",
        (_, Success::Part) => "partly",
        (_, Success::Refused) => "refused",
        (_, Success::Nobody | Success::Failed) => "failed",
    }
}
