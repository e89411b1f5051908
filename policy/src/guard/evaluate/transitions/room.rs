//! Room for violation states. Where not all fit, each person has an equal share: no state of a
//! person with few violations is dropped for one of a person with many.

use super::super::super::person_key::PersonRef;
use super::super::super::state::RuleViolations;
use super::super::super::violation_state::ViolationState;
use super::super::compiled_rules::{PolicyIndex, RuleResponse};
use super::super::context::EvaluationContext;
use super::super::findings::{Finding, Findings, SubjectIndex};
use super::super::overflow::Overflow;
use super::lifecycle::{ends_with_processes, over_record};
use crate::round_robin::interleave;
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardRecord, GuardStep, RuleKind, RuleName, ViolationSubject,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The key of a finding.
pub(super) type FindingKey = (PolicyIndex, RuleKind, SubjectIndex);

/// Why a violation is dropped before it is over.
const NO_ROOM: &str = "there is no room for all violations, and its owner has the most: it is \
                       dropped until there is room";

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
    let excess = select_excess(places, bound);
    overflow.violations += excess.len();
    let dropped: BTreeSet<usize> = excess.iter().filter_map(|it| it.state).into_set();
    let refused = excess.into_iter().filter_map(|it| it.finding).into_set();
    let mut position = 0..;
    for (rule, of_rule) in violations {
        of_rule.of.retain(|subject, violation| {
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
struct Place<'a> {
    holder: Holder<'a>,
    rank: Rank,
    /// The position of the state among the states of all rules.
    state: Option<usize>,
    /// The finding that holds.
    finding: Option<FindingKey>,
}

/// Each holder has an equal share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder<'a> {
    Person(PersonRef<'a>),
    /// All people who are unknown.
    Unknown,
    /// A violation of no single person. The rules and devices limit the number of these, so
    /// each counts as a person of its own.
    Shared(usize),
}

/// The importance of a place among those of one person: a higher rank stays. Processes that are
/// only warned about never displace a rule that ends jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    action: GuardAction,
    mode: GuardMode,
    /// It does not multiply with the processes of the person.
    is_of_person: bool,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    New,
    Unconfirmed,
    Confirmed,
    /// A job was ended for it: the wait before the next end is part of its state.
    Ended,
}

impl Progress {
    fn new(violation: &ViolationState) -> Self {
        match &violation.opened {
            None => Self::Unconfirmed,
            Some(opened) if opened.ended_at().is_some() => Self::Ended,
            Some(_) => Self::Confirmed,
        }
    }
}

/// All states, and the findings without one.
fn list_places<'a>(
    context: &'a EvaluationContext<'_>,
    violations: &'a BTreeMap<RuleName, RuleViolations>,
    findings: &Findings,
) -> Vec<Place<'a>> {
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
            let is_of_person = !ends_with_processes(subject);
            places.push(Place {
                holder: match index {
                    Some(index) => holder_of_index(context, index, position),
                    None => holder_of_absent(subject, violation, position),
                },
                rank: Rank::new(&response, is_of_person, Progress::new(violation)),
                state: Some(position),
                finding: index.filter(holds).map(|index| (policy, rule.kind, index)),
            });
            position += 1;
        }
        for (index, finding) in found {
            if !matches!(finding, Finding::Holds(_)) || existing.contains(index) {
                continue;
            }
            let is_of_person = !matches!(index, SubjectIndex::Job(_) | SubjectIndex::Run(_));
            // States and findings have separate numbers as holders.
            let number = usize::MAX - places.len();
            places.push(Place {
                holder: holder_of_index(context, *index, number),
                rank: Rank::new(&response, is_of_person, Progress::New),
                state: None,
                finding: Some((policy, rule.kind, *index)),
            });
        }
    }
    places
}

impl Rank {
    fn new(response: &RuleResponse, is_of_person: bool, progress: Progress) -> Self {
        Self {
            action: response.action,
            mode: response.mode,
            is_of_person,
            progress,
        }
    }
}

/// The holder of a subject that is present.
fn holder_of_index<'a>(
    context: &'a EvaluationContext<'_>,
    subject: SubjectIndex,
    number: usize,
) -> Holder<'a> {
    let person = match subject {
        SubjectIndex::Person(at) | SubjectIndex::PersonOn(at, _) => Some(at),
        SubjectIndex::Job(at) => Some(context.jobs[at].person),
        SubjectIndex::Run(at) => context.runs[at].person,
        SubjectIndex::Group(_) | SubjectIndex::GroupOn(..) | SubjectIndex::Device(_) => {
            return Holder::Shared(number);
        }
    };
    person.map_or(Holder::Unknown, |at| {
        Holder::Person(PersonRef::from(context.people[at]))
    })
}

/// The holder of a subject that is no longer present.
fn holder_of_absent<'a>(
    subject: &'a ViolationSubject,
    violation: &'a ViolationState,
    number: usize,
) -> Holder<'a> {
    let person = match subject {
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => Some(person),
        ViolationSubject::Job(job) => Some(&job.owner),
        ViolationSubject::Run(_) => {
            let opened = violation.opened.as_ref();
            let run = opened.and_then(|opened| opened.evidence.runs.first());
            run.and_then(|run| run.facts.owner.as_ref())
        }
        ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_) => return Holder::Shared(number),
    };
    person.map_or(Holder::Unknown, |person| {
        Holder::Person(PersonRef::from(person))
    })
}

/// The places beyond `bound`: of the holders with the most, those of the lowest rank.
fn select_excess(mut places: Vec<Place<'_>>, bound: usize) -> Vec<Place<'_>> {
    places.sort_indirect_by_key(|place| Reverse(place.rank));
    let by_holder = places.into_iter().map(|place| (place.holder, place));
    interleave(by_holder).into_iter().skip(bound).collect()
}
