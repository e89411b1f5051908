//! What is said of a kill while it goes on: how many have ended, and who or what
//! is waited for.

use super::super::holders::gpus;
use super::super::line::{Line, shown};
use super::super::look::Symbols;
use super::ends;
use gpukill_proto::kill::{
    Ending, KillOutcome, KillPlan, KillReport, KillReportPage, KillTarget, MemoryReturn, Stage,
};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;

/// `3 of 9 ended, waiting for 48219 (python)`
pub(crate) fn under_way(plan: &KillPlan, page: &KillReportPage, symbols: Symbols) -> Line {
    let KillReportPage { report, next } = page;
    let mut meant: BTreeSet<ProcessKey> = targets(plan).map(|target| target.key).collect();
    let ended = report.outcomes.iter().filter(|it| has_ended(it));
    let ended: BTreeSet<ProcessKey> = ended.map(|outcome| outcome.key).collect();
    // Those that were born meanwhile are in no plan.
    meant.extend(&ended);
    let at_least = if next.is_some() { "at least " } else { "" };
    let (ended, all) = (ended.len(), meant.len());
    let mut text = format!("{at_least}{ended} of {all} ended");
    if let Some(what) = waited_for(plan, page, symbols) {
        text.push_str(", waiting for ");
        text.push_str(&what);
    }
    Line::plain(text)
}

fn targets(plan: &KillPlan) -> impl Iterator<Item = &KillTarget> {
    plan.targets.iter().filter(|target| ends(target))
}

fn has_ended(outcome: &KillOutcome) -> bool {
    match outcome.ending {
        Ending::Ended(..) | Ending::Gone => true,
        Ending::Survived(..)
        | Ending::Changed(_)
        | Ending::Protected(_)
        | Ending::Denied(_)
        | Ending::Unclear(_)
        | Ending::Uninterruptible(_)
        | Ending::Zombie(_)
        | Ending::Failed(_) => false,
    }
}

fn waited_for(plan: &KillPlan, page: &KillReportPage, symbols: Symbols) -> Option<String> {
    match page.report.stage {
        Stage::Ending => somebody(plan, page, symbols),
        Stage::Releasing => Some(memory(&page.report)),
        Stage::Done | Stage::Interrupted => None,
    }
}

/// The first that is not settled. Behind the last outcome of a page that is not the
/// last nothing is known of anybody.
fn somebody(plan: &KillPlan, page: &KillReportPage, symbols: Symbols) -> Option<String> {
    let outcomes = &page.report.outcomes;
    let settled: BTreeSet<ProcessKey> = outcomes.iter().map(|outcome| outcome.key).collect();
    let is_told = |key: &ProcessKey| page.next.is_none() || settled.last() > Some(key);
    let somebody =
        targets(plan).find(|target| !settled.contains(&target.key) && is_told(&target.key))?;
    let name = shown(&somebody.name, symbols);
    Some(format!("{} ({name})", somebody.key.pid))
}

fn memory(report: &KillReport) -> String {
    // Where it is not known what was held, nothing can be missing.
    let is_missing = |it: &&MemoryReturn| it.after_ms.is_none() && it.held.known().is_some();
    let missing = report.memory.iter().filter(is_missing);
    let indices: BTreeSet<u32> = missing.map(|it| it.index).collect();
    let indices: Vec<u32> = indices.into_iter().collect();
    match indices.as_slice() {
        [] => "the memory".to_owned(),
        indices => format!("the memory of {}", gpus(indices)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample;
    use super::*;
    use gpukill_proto::reading::Reading;

    fn said(plan: &KillPlan, report: KillReport, next: Option<u32>) -> String {
        let page = KillReportPage { report, next };
        under_way(plan, &page, Symbols::Unicode).text()
    }

    #[test]
    fn those_that_have_ended_are_counted_and_the_first_that_has_not_is_named() {
        let (mut plan, mut report) = sample::report();
        plan.targets[4].name = "evil\x1b[2J".into();
        report.stage = Stage::Ending;
        // Seven are to be ended: of the others nothing is waited for.
        assert_eq!(said(&plan, report.clone(), None), "3 of 7 ended");
        let whole = report.outcomes.clone();
        report.outcomes.truncate(4);
        assert_eq!(
            said(&plan, report.clone(), None),
            "2 of 7 ended, waiting for 48217 (evil\\x1b[2J)"
        );
        // Nobody is missing of whom a later page may tell.
        assert_eq!(
            said(&plan, report.clone(), Some(4)),
            "at least 2 of 7 ended"
        );
        // One that was born meanwhile.
        report.outcomes = whole;
        report.outcomes[0].key.pid = 3;
        assert_eq!(
            said(&plan, report, Some(11)),
            "at least 3 of 8 ended, waiting for 7 (python)"
        );
    }

    #[test]
    fn at_last_the_memory_is_waited_for_that_is_known_to_be_missing() {
        let (plan, mut report) = sample::report();
        report.stage = Stage::Releasing;
        let whole = report.memory.clone();
        report.memory.clear();
        let memory = "3 of 7 ended, waiting for the memory";
        assert_eq!(said(&plan, report.clone(), None), memory);
        report.memory = whole;
        report.memory[3].held = Reading::Failed("x".into());
        assert_eq!(said(&plan, report, None), format!("{memory} of GPUs 2, 4"));
    }
}
