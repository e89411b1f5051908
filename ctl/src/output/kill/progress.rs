//! The progress line of a kill: how many processes have ended, and what is waited for.

use super::super::holders::gpu_ranges;
use super::super::style::Symbols;
use super::super::text::{Line, escaped};
use super::is_ended;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{
    KillPlan, KillReport, KillReportPage, KillTarget, MemoryReclaim, Outcome, ProcessOutcome, Stage,
};
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeSet;

/// `3 of 9 ended, waiting for 48219 (python)`
pub(crate) fn progress_line(plan: &KillPlan, page: &KillReportPage, symbols: Symbols) -> Line {
    let KillReportPage { report, next } = page;
    let mut pending: BTreeSet<ProcessKey> = targets(plan).map(|target| target.key).into_set();
    let ended = report.outcomes.iter().filter(|it| has_ended(it));
    let ended: BTreeSet<ProcessKey> = ended.map(|outcome| outcome.key).into_set();
    // Processes forked since are not in the plan.
    pending.extend(&ended);
    let at_least = if next.is_some() { "at least " } else { "" };
    let (ended, all) = (ended.len(), pending.len());
    let mut text = format!("{at_least}{ended} of {all} ended");
    if let Some(what) = waited_for_text(plan, page, symbols) {
        text.push_str(", waiting for ");
        text.push_str(&what);
    }
    Line::plain(text)
}

fn targets(plan: &KillPlan) -> impl Iterator<Item = &KillTarget> {
    plan.targets.iter().filter(|target| is_ended(target))
}

fn has_ended(outcome: &ProcessOutcome) -> bool {
    match outcome.outcome {
        Outcome::Ended(..) | Outcome::Gone => true,
        Outcome::Survived(..)
        | Outcome::Changed(_)
        | Outcome::Protected(_)
        | Outcome::Denied(_)
        | Outcome::Unclear(_)
        | Outcome::Uninterruptible(_)
        | Outcome::Zombie(_)
        | Outcome::Failed(_) => false,
    }
}

fn waited_for_text(plan: &KillPlan, page: &KillReportPage, symbols: Symbols) -> Option<String> {
    match page.report.stage {
        Stage::Ending => first_unsettled(plan, page, symbols),
        Stage::Reclaiming => Some(missing_memory_text(&page.report)),
        Stage::Done | Stage::Interrupted => None,
    }
}

/// The first process that is not settled. After the last outcome of a page that is not the last
/// page, nothing is known.
fn first_unsettled(plan: &KillPlan, page: &KillReportPage, symbols: Symbols) -> Option<String> {
    let outcomes = &page.report.outcomes;
    let settled: BTreeSet<ProcessKey> = outcomes.iter().map(|outcome| outcome.key).into_set();
    let is_listed = |key: &ProcessKey| page.next.is_none() || settled.last() > Some(key);
    let unsettled =
        targets(plan).find(|target| !settled.contains(&target.key) && is_listed(&target.key))?;
    let name = escaped(&unsettled.name, symbols);
    Some(format!("{} ({name})", unsettled.key.pid))
}

fn missing_memory_text(report: &KillReport) -> String {
    // When the held memory is not known, none can be missing.
    let is_missing = |it: &&MemoryReclaim| it.after_ms.is_none() && it.held.known().is_some();
    let missing = report.memory.iter().filter(is_missing);
    let indices: BTreeSet<u32> = missing.map(|it| it.index).into_set();
    let indices: Vec<u32> = indices.into_iter().collect();
    match indices.as_slice() {
        [] => "the memory".to_owned(),
        indices => format!("the memory of {}", gpu_ranges(indices)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures;
    use super::*;
    use gpukill_proto::reading::Reading;

    fn progress(plan: &KillPlan, report: KillReport, next: Option<u32>) -> String {
        let page = KillReportPage { report, next };
        progress_line(plan, &page, Symbols::Unicode).text()
    }

    #[test]
    fn ended_are_counted_and_the_first_other_is_named() {
        let (mut plan, mut report) = fixtures::report();
        plan.targets[4].name = "evil\x1b[2J".into();
        report.stage = Stage::Ending;
        // The plan ends seven processes; the others are not waited for.
        assert_eq!(progress(&plan, report.clone(), None), "3 of 7 ended");
        let whole = report.outcomes.clone();
        report.outcomes.truncate(4);
        assert_eq!(
            progress(&plan, report.clone(), None),
            "2 of 7 ended, waiting for 48217 (evil\\x1b[2J)"
        );
        // A later page may report every remaining process.
        assert_eq!(
            progress(&plan, report.clone(), Some(4)),
            "at least 2 of 7 ended"
        );
        // A process that was forked since.
        report.outcomes = whole;
        report.outcomes[0].key.pid = 3;
        assert_eq!(
            progress(&plan, report, Some(11)),
            "at least 3 of 8 ended, waiting for 7 (python)"
        );
    }

    #[test]
    fn missing_memory_is_waited_for_last() {
        let (plan, mut report) = fixtures::report();
        report.stage = Stage::Reclaiming;
        let whole = report.memory.clone();
        report.memory.clear();
        let memory = "3 of 7 ended, waiting for the memory";
        assert_eq!(progress(&plan, report.clone(), None), memory);
        report.memory = whole;
        report.memory[3].held = Reading::Failed("x".into());
        assert_eq!(
            progress(&plan, report, None),
            format!("{memory} of GPUs 2, 4")
        );
    }
}
