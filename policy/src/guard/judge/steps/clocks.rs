//! Which clocks begin, which are outdated, and how one is over.

use super::super::super::bucket::Bucket;
use super::super::super::clock::Clock;
use super::super::super::memory::{Clocks, is_current};
use super::super::bounds::Beyond;
use super::super::finding::{Finding, Whom};
use super::super::scene::Scene;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{GuardRecord, GuardStep, RuleName, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Starts a clock for whom a rule holds that has none, as long as there is room. Whose
/// the clocks are, in their order: `None` of who is gone.
pub(super) fn start(
    scene: &Scene<'_>,
    clocks: &mut BTreeMap<Subject, Clock>,
    found: &BTreeMap<Whom, Finding>,
    room: &mut usize,
    beyond: &mut Beyond,
) -> Vec<Option<Whom>> {
    let whose = |clocks: &BTreeMap<Subject, Clock>| -> Vec<Option<Whom>> {
        clocks.keys().map(|it| scene.find(it)).collect()
    };
    let before = whose(clocks);
    let going: BTreeSet<Whom> = before.iter().copied().flatten().into_set();
    for (whom, finding) in found {
        if let Finding::Holds(held) = finding
            && !going.contains(whom)
        {
            let Some(left) = room.checked_sub(1) else {
                beyond.violations += 1;
                continue;
            };
            *room = left;
            let since = held.since.unwrap_or(scene.bucket.from);
            let clock = clocks.entry(scene.subject(*whom));
            clock.or_insert_with(|| Clock::starting(since));
        }
    }
    // Mostly none begins.
    if clocks.len() == before.len() {
        before
    } else {
        whose(clocks)
    }
}

/// What the rules no longer say, or say otherwise, is over.
pub(super) fn outdated(
    scene: &Scene<'_>,
    clocks: &mut BTreeMap<RuleName, Clocks>,
    records: &mut Vec<GuardRecord>,
) {
    clocks.retain(|rule, of_rule| {
        let is_current = is_current(scene.book, rule, of_rule.digest)
            && scene
                .book
                .find(&rule.source)
                .is_some_and(|policy| scene.book.course(policy, rule.kind).is_some());
        if !is_current {
            for (subject, clock) in &of_rule.of {
                let over = over(scene.bucket, rule, subject, clock);
                records.extend(over.map(|over| GuardRecord {
                    step: GuardStep::Outdated,
                    ..over
                }));
            }
        }
        is_current
    });
}

pub(super) fn over(
    bucket: &Bucket,
    rule: &RuleName,
    subject: &Subject,
    clock: &Clock,
) -> Option<GuardRecord> {
    let opened = clock.opened.as_ref()?;
    Some(GuardRecord {
        at: bucket.until,
        rule: rule.clone(),
        subject: subject.clone(),
        mode: opened.mode,
        step: GuardStep::Over,
        evidence: opened.evidence.told(),
        message: opened.message.clone(),
    })
}

/// Whether it is no more once its processes are gone: who comes after them is another.
pub(super) const fn is_of_processes(subject: &Subject) -> bool {
    match subject {
        Subject::Job(_) | Subject::Run(_) => true,
        Subject::Person(_)
        | Subject::PersonOn(..)
        | Subject::Group(_)
        | Subject::GroupOn(..)
        | Subject::Device(_) => false,
    }
}
