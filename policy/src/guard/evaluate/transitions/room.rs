//! Room for violation states. Where not all fit, each person has an equal share: no state of a
//! person with few violations is dropped for one of a person with many.

use super::super::super::person_key::PersonRef;
use super::super::super::state::RuleViolations;
use super::super::super::violation_places::{
    PlaceOwner, PlaceRank, ViolationProgress, order_by_share,
};
use super::super::compiled_rules::PolicyIndex;
use super::super::context::EvaluationContext;
use super::super::findings::{Finding, Findings, SubjectIndex};
use super::super::overflow::Overflow;
use super::lifecycle::{ends_with_processes, over_record};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{GuardRecord, GuardStep, RuleKind, RuleName};
use std::collections::{BTreeMap, BTreeSet};

/// The key of a finding.
pub(super) type FindingKey = (PolicyIndex, RuleKind, SubjectIndex);

/// Why a violation is dropped before it is over.
const NO_ROOM: &str = "there is no room for all violations, and its owner has the most: its \
                       warnings and its grace period are lost, and it begins again when there is \
                       room; write fewer rules, or have the owner start fewer jobs";

/// Drops states of people with more than their share, if the states and the new findings exceed
/// `bound`. Returns the findings that open no violation.
pub(super) fn make_room(
    context: &EvaluationContext<'_>,
    violations: &mut BTreeMap<RuleName, RuleViolations>,
    findings: &Findings,
    bound: usize,
    (records, overflow): (&mut Vec<GuardRecord>, &mut Overflow),
) -> BTreeSet<FindingKey> {
    let existing: usize = violations.values().map(|of_rule| of_rule.of.len()).sum();
    let found = findings.by_rule.values().flat_map(BTreeMap::values);
    let new = found.filter(|it| matches!(it, Finding::Holds(_))).count();
    // Usually all fit, even if each finding were new.
    if existing.saturating_add(new) <= bound {
        return BTreeSet::new();
    }
    let places = list_places(context, violations, findings);
    let excess: Vec<Place> = order_by_share(places).into_iter().skip(bound).collect();
    overflow.violations += excess.len();
    let dropped: BTreeSet<usize> = excess.iter().filter_map(|it| it.state).into_set();
    let refused = excess.into_iter().filter_map(|it| it.finding).into_set();
    let mut position = 0..;
    for (rule, of_rule) in violations {
        of_rule.of.retain_entries(|subject, violation| {
            let is_dropped = position.next().is_some_and(|at| dropped.contains(&at));
            if is_dropped {
                let over = over_record(context.sample, rule, subject, violation);
                records.extend(over.map(|over| GuardRecord {
                    step: GuardStep::Exempt(NO_ROOM.to_owned()),
                    ..over
                }));
            }
            !is_dropped
        });
    }
    refused
}

/// A state, or a finding that would open one.
struct Place {
    /// The position of the state among the states of all rules.
    state: Option<usize>,
    /// The finding that holds.
    finding: Option<FindingKey>,
}

/// All states, and the findings without one.
fn list_places<'a>(
    context: &'a EvaluationContext<'_>,
    violations: &'a BTreeMap<RuleName, RuleViolations>,
    findings: &Findings,
) -> Vec<(PlaceOwner<'a>, PlaceRank, Place)> {
    let mut places = Vec::new();
    let mut position = 0;
    for (rule, of_rule) in violations {
        let Some(policy) = context.compiled_rules.find(&rule.source) else {
            position += of_rule.of.len();
            continue;
        };
        let Some(response) = context.compiled_rules.response(policy, rule.kind) else {
            position += of_rule.of.len();
            continue;
        };
        let nothing = BTreeMap::new();
        let found = findings.by_rule.get(&(policy, rule.kind));
        let found = found.unwrap_or(&nothing);
        let mut existing = BTreeSet::new();
        for (subject, violation) in &of_rule.of {
            let index = context.find_subject(subject);
            existing.extend(index);
            let holds = |index: &SubjectIndex| matches!(found.get(index), Some(Finding::Holds(_)));
            let owner = match index {
                Some(index) => find_owner(context, index, position),
                None => PlaceOwner::from_violation(subject, violation, position),
            };
            let rank = PlaceRank {
                action: response.action,
                mode: response.mode,
                is_of_person: !ends_with_processes(subject),
                progress: violation.into(),
            };
            let place = Place {
                state: Some(position),
                finding: index.filter(holds).map(|index| (policy, rule.kind, index)),
            };
            places.push((owner, rank, place));
            position += 1;
        }
        for (index, finding) in found {
            if !matches!(finding, Finding::Holds(_)) || existing.contains(index) {
                continue;
            }
            // States and findings have separate numbers as owners.
            let number = usize::MAX - places.len();
            let owner = find_owner(context, *index, number);
            let rank = PlaceRank {
                action: response.action,
                mode: response.mode,
                is_of_person: !matches!(index, SubjectIndex::Job(_) | SubjectIndex::Run(_)),
                progress: ViolationProgress::New,
            };
            let place = Place {
                state: None,
                finding: Some((policy, rule.kind, *index)),
            };
            places.push((owner, rank, place));
        }
    }
    places
}

/// The owner of a subject that is present.
fn find_owner<'a>(
    context: &'a EvaluationContext<'_>,
    subject: SubjectIndex,
    number: usize,
) -> PlaceOwner<'a> {
    let person = match subject {
        SubjectIndex::Person(at) | SubjectIndex::PersonOn(at, _) => Some(at),
        SubjectIndex::Job(at) => Some(context.jobs[at].person),
        SubjectIndex::Run(at) => context.runs[at].person,
        SubjectIndex::Group(_) | SubjectIndex::GroupOn(..) | SubjectIndex::Device(_) => {
            return PlaceOwner::Shared(number);
        }
    };
    person.map_or(PlaceOwner::Unknown, |at| {
        PlaceOwner::Person(PersonRef::from(context.people[at]))
    })
}
