//! Creates violation states, and closes those that are outdated or over.

use super::super::super::sample::GuardSample;
use super::super::super::state::{RuleViolations, is_current};
use super::super::super::violation_state::ViolationState;
use super::super::context::EvaluationContext;
use super::super::findings::{Finding, SubjectIndex};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{GuardRecord, GuardStep, RuleName, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

/// Creates a violation state for each subject for which the condition holds and that has
/// none, unless there is no room for it. Returns the positions of the subjects of all states,
/// in their order; `None` for a subject that is gone.
pub(super) fn create_states(
    context: &EvaluationContext<'_>,
    violations: &mut BTreeMap<ViolationSubject, ViolationState>,
    findings: &BTreeMap<SubjectIndex, Finding>,
    is_refused: impl Fn(SubjectIndex) -> bool,
) -> Vec<Option<SubjectIndex>> {
    let subjects =
        |violations: &BTreeMap<ViolationSubject, ViolationState>| -> Vec<Option<SubjectIndex>> {
            violations
                .keys()
                .map(|it| context.find_subject(it))
                .collect()
        };
    let before = subjects(violations);
    let existing: BTreeSet<SubjectIndex> = before.iter().copied().flatten().into_set();
    for (subject, finding) in findings {
        if let Finding::Holds(held) = finding
            && !existing.contains(subject)
            && !is_refused(*subject)
        {
            let since = held.since.unwrap_or(context.sample.from);
            let entry = violations.entry(context.subject(*subject));
            entry.or_insert_with(|| ViolationState::new(since));
        }
    }
    // Usually none is created.
    if violations.len() == before.len() {
        before
    } else {
        subjects(violations)
    }
}

/// Closes the violations of rules that were removed or changed.
pub(super) fn close_outdated(
    context: &EvaluationContext<'_>,
    violations: &mut BTreeMap<RuleName, RuleViolations>,
    records: &mut Vec<GuardRecord>,
) {
    violations.retain_entries(|rule, of_rule| {
        let is_current = is_current(context.compiled_rules, rule, of_rule.digest)
            && context
                .compiled_rules
                .find(&rule.source)
                .is_some_and(|policy| context.compiled_rules.response(policy, rule.kind).is_some());
        if !is_current {
            for (subject, violation) in &of_rule.of {
                let over = over_record(context.sample, rule, subject, violation);
                records.extend(over.map(|over| GuardRecord {
                    step: GuardStep::Outdated,
                    ..over
                }));
            }
        }
        is_current
    });
}

pub(super) fn over_record(
    sample: &GuardSample,
    rule: &RuleName,
    subject: &ViolationSubject,
    violation: &ViolationState,
) -> Option<GuardRecord> {
    let opened = violation.opened.as_ref()?;
    Some(GuardRecord {
        at: sample.until,
        rule: rule.clone(),
        subject: subject.clone(),
        mode: opened.mode,
        step: GuardStep::Over,
        evidence: opened.evidence.to_evidence(),
        message: opened.message.clone(),
    })
}

/// Whether a subject ends with its processes: later processes are another subject.
pub(super) const fn ends_with_processes(subject: &ViolationSubject) -> bool {
    match subject {
        ViolationSubject::Job(_) | ViolationSubject::Run(_) => true,
        ViolationSubject::Person(_)
        | ViolationSubject::PersonOn(..)
        | ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_) => false,
    }
}
