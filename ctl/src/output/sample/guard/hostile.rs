//! The same with texts that would steer a terminal.

use super::{brief, job, replayed, ruled, violations};
use gpukill_proto::guard::{
    GuardBrief, GuardRecord, GuardStep, JudgedAs, Person, ReplayReport, RuleName, RuleSource,
    Ruled, Subject, Told, ViolationPage,
};

/// Every text of it, each the one that is shown.
pub(crate) fn hostile(text: &str) -> (ViolationPage, ReplayReport, Ruled, GuardBrief) {
    let name = || Person {
        name: text.into(),
        uid: None,
    };
    let make_told = |told: &mut Told| {
        told.owner = Some(name());
        told.name = Some(text.into());
        told.job = Some(text.into());
    };
    let rule = |kind| RuleName {
        source: RuleSource::Rule(text.into()),
        kind,
    };
    let subjects = [
        Subject::Person(name()),
        Subject::Group(text.into()),
        Subject::Job(job(name(), text)),
    ];
    let mut page = violations();
    let all = page.open.iter_mut().chain(&mut page.would_have_ended);
    for (open, subject) in all.zip(subjects.iter().cycle()) {
        open.rule = rule(open.rule.kind);
        open.subject = subject.clone();
        open.message = Some(text.into());
        open.evidence.runs.iter_mut().for_each(make_told);
    }
    let make_record = |record: &mut GuardRecord| {
        record.rule = rule(record.rule.kind);
        record.subject = subjects[1].clone();
        record.message = Some(text.into());
        record.evidence.runs.iter_mut().for_each(make_told);
        match &mut record.step {
            GuardStep::Ended(victim) => {
                victim.runs.iter_mut().for_each(make_told);
                victim.job = job(name(), text);
                victim.leave_to = victim.leave_to.as_ref().map(|_| text.into());
            }
            GuardStep::Spared(why) => *why = text.into(),
            GuardStep::Acted(acted) => {
                acted.job = job(name(), text);
                acted.why = Some(text.into());
            }
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => {}
        }
    };
    page.records
        .iter_mut()
        .for_each(|(_, record)| make_record(record));
    let mut report = replayed();
    report.records.iter_mut().for_each(make_record);
    report.open.clone_from(&page.open);
    for outcome in &mut report.outcomes {
        outcome.rule = rule(outcome.rule.kind);
    }
    for unknown in &mut report.not_judged {
        unknown.rule = unknown.rule.take().map(|it| rule(it.kind));
        unknown.why = text.into();
        unknown.subject = Subject::Group(text.into());
    }
    let mut ruled = ruled();
    ruled.violations.clone_from(&page.open);
    ruled.would_have_ended.clone_from(&page.would_have_ended);
    ruled.judged_as = JudgedAs::Login(name());
    for limit in &mut ruled.limits {
        limit.rule = rule(limit.rule.kind);
        for (replaced, _) in &mut limit.replaces {
            *replaced = rule(replaced.kind);
        }
    }
    let mut brief = brief();
    for mark in &mut brief.marked {
        mark.rule = rule(mark.rule.kind);
    }
    (page, report, ruled, brief)
}
