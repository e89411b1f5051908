//! Findings of one sample: which conditions hold, with their evidence, and which are
//! unknown. A condition without a finding is known not to hold.

use super::super::person_key::PersonRef;
use super::super::state::evidence::{LazyEvidence, ObservedRun};
use super::compiled_rules::PolicyIndex;
use super::context::EvaluationContext;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{MAX_EVIDENCE_PROCESSES, Measurement, Person, RuleKind};
use gpukill_proto::rogue::Threat;
use gpukill_proto::units::Timestamp;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Findings by rule and subject.
pub(crate) struct Findings {
    pub(crate) by_rule: BTreeMap<(PolicyIndex, RuleKind), BTreeMap<SubjectIndex, Finding>>,
    places: FindingPlaces,
    /// How many findings did not fit.
    pub(crate) dropped: usize,
    /// Where findings did not fit.
    incomplete: BTreeSet<FindingHolder>,
}

/// The places of findings. The first serve everyone. Beyond them each person has an equal share
/// of places for conditions that hold, so that the findings of one person displace no others.
struct FindingPlaces {
    /// How many more findings of anyone fit.
    free: usize,
    /// How many more findings fit in the share of each.
    shares: BTreeMap<FindingHolder, usize>,
    /// The person of each job and each run, by position.
    people_of_jobs: Vec<usize>,
    people_of_runs: Vec<Option<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FindingHolder {
    /// Position in the context.
    Person(usize),
    UnknownPerson,
    /// Groups and devices.
    Shared,
}

impl FindingPlaces {
    fn new(context: &EvaluationContext<'_>, bound: usize) -> Self {
        let is_user = |person: &&&Person| PersonRef::from(**person).share().is_some();
        let users = context.people.iter().filter(is_user).count();
        let others = context.people.len() - users;
        // All others divide one share, as unknown people, and groups and devices do.
        let share = bound / 2 / (users + 3);
        let of_person = |(at, person): (usize, &&Person)| {
            let share = match PersonRef::from(*person).share() {
                Some(_) => share,
                None => share / others.max(1),
            };
            (FindingHolder::Person(at), share)
        };
        let of_no_person = [FindingHolder::UnknownPerson, FindingHolder::Shared];
        let shares = context.people.iter().enumerate().map(of_person);
        let shares = shares.chain(of_no_person.map(|holder| (holder, share)));
        Self {
            free: bound,
            shares: shares.into_map(),
            people_of_jobs: context.jobs.iter().map(|job| job.person).collect(),
            people_of_runs: context.runs.iter().map(|run| run.person).collect(),
        }
    }

    fn holder(&self, subject: SubjectIndex) -> FindingHolder {
        let person = match subject {
            SubjectIndex::Person(at) | SubjectIndex::PersonOn(at, _) => Some(at),
            SubjectIndex::Job(at) => Some(self.people_of_jobs[at]),
            SubjectIndex::Run(at) => self.people_of_runs[at],
            SubjectIndex::Group(_) | SubjectIndex::GroupOn(..) | SubjectIndex::Device(_) => {
                return FindingHolder::Shared;
            }
        };
        person.map_or(FindingHolder::UnknownPerson, FindingHolder::Person)
    }

    /// Takes a place for a finding, if there is one.
    fn take(&mut self, holder: FindingHolder, finding: &Finding) -> bool {
        let left = match (self.free, finding) {
            (1.., _) => Some(&mut self.free),
            (0, Finding::Holds(_)) => self.shares.get_mut(&holder),
            // What is unknown only keeps violations open: a missing finding does so too.
            (0, Finding::Unknown(_) | Finding::Stale) => None,
        };
        let Some(left) = left.filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }
}

/// A subject by its position in the context; a group by its position in the rules. Most
/// findings are never reported, so names are looked up only when they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SubjectIndex {
    Person(usize),
    /// Person and device.
    PersonOn(usize, usize),
    Group(usize),
    /// Group and device.
    GroupOn(usize, usize),
    Device(usize),
    Job(usize),
    Run(usize),
}

pub(crate) enum Finding {
    Holds(ViolationDetails),
    /// It is unknown whether the condition holds, with the reason.
    Unknown(Cow<'static, str>),
    /// The condition held by earlier readings, and this sample has none. The earlier
    /// finding stands, and nothing follows from it.
    Stale,
}

/// A condition that holds.
pub(crate) struct ViolationDetails {
    pub(crate) measured: Option<Measurement>,
    /// Since when it holds, if not since the first sample in which it held.
    pub(crate) since: Option<Timestamp>,
    /// Positions in the context.
    pub(crate) runs: Vec<usize>,
    /// How many of these runs have an unknown amount that would add to the measured value.
    pub(crate) unknown: u32,
    /// The amount to free.
    pub(crate) excess: Excess,
    /// The suspected threat, for a rogue verdict.
    pub(crate) threat: Option<Threat>,
}

/// The amount to free so that a condition no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    Bytes(u64),
    Processes(u64),
    Percent(u64),
    All,
}

impl Excess {
    /// The amount left after freeing this amount; `None` if that is enough.
    pub(crate) fn reduced_by(self, freed: u64) -> Option<Self> {
        let left = |much: u64| much.saturating_sub(freed);
        match self {
            Self::Bytes(much) if left(much) > 0 => Some(Self::Bytes(left(much))),
            Self::Processes(much) if left(much) > 0 => Some(Self::Processes(left(much))),
            Self::Percent(much) if left(much) > 0 => Some(Self::Percent(left(much))),
            Self::Bytes(_) | Self::Processes(_) | Self::Percent(_) => None,
            Self::All => Some(Self::All),
        }
    }
}

impl Findings {
    /// No findings yet, with places for `bound`, and half as many in shares.
    pub(crate) fn new(context: &EvaluationContext<'_>, bound: usize) -> Self {
        Self {
            by_rule: BTreeMap::new(),
            places: FindingPlaces::new(context, bound),
            dropped: 0,
            incomplete: BTreeSet::new(),
        }
    }

    /// Whether a missing finding of this subject shows that a condition does not hold: no
    /// finding of its person was dropped.
    pub(crate) fn is_complete(&self, subject: SubjectIndex) -> bool {
        !self.incomplete.contains(&self.places.holder(subject))
    }

    /// A condition that holds outranks an unknown one. If two hold, the one further beyond
    /// its limit is kept.
    pub(crate) fn add(
        &mut self,
        policy: PolicyIndex,
        kind: RuleKind,
        subject: SubjectIndex,
        new: Finding,
    ) {
        let old = self
            .by_rule
            .get(&(policy, kind))
            .and_then(|it| it.get(&subject));
        let replaces = match (old, &new) {
            (None, _) => {
                let holder = self.places.holder(subject);
                if !self.places.take(holder, &new) {
                    self.dropped += 1;
                    self.incomplete.insert(holder);
                    return;
                }
                true
            }
            (Some(Finding::Unknown(_) | Finding::Stale), Finding::Holds(_)) => true,
            (Some(_), Finding::Unknown(_) | Finding::Stale) => false,
            (Some(Finding::Holds(old)), Finding::Holds(new)) => {
                distance_to_limit(old) < distance_to_limit(new)
            }
        };
        if replaces {
            let of_rule = self.by_rule.entry((policy, kind)).or_default();
            of_rule.insert(subject, new);
        }
    }

    pub(crate) fn add_violated(
        &mut self,
        policy: PolicyIndex,
        kind: RuleKind,
        subject: SubjectIndex,
        held: ViolationDetails,
    ) {
        self.add(policy, kind, subject, Finding::Holds(held));
    }

    /// The condition held by earlier readings, and its current state is unknown.
    pub(crate) fn add_stale(&mut self, policy: PolicyIndex, kind: RuleKind, subject: SubjectIndex) {
        self.add(policy, kind, subject, Finding::Stale);
    }

    /// Adds a condition that holds, or an unknown one with a doubt: then it holds only if a
    /// claim of the process is false.
    pub(crate) fn add_violated_unless(
        &mut self,
        (policy, doubt): (PolicyIndex, Option<&'static str>),
        kind: RuleKind,
        subject: SubjectIndex,
        held: ViolationDetails,
    ) {
        match doubt {
            None => self.add_violated(policy, kind, subject, held),
            Some(why) => self.add_unknown(policy, kind, subject, why),
        }
    }

    pub(crate) fn add_unknown(
        &mut self,
        policy: PolicyIndex,
        kind: RuleKind,
        subject: SubjectIndex,
        why: impl Into<Cow<'static, str>>,
    ) {
        self.add(policy, kind, subject, Finding::Unknown(why.into()));
    }
}

/// Why the limits of a Slurm job are unknown.
pub(crate) const SELF_REPORTED_ACCOUNT: &str = "its account is only its own claim";

/// Why it is unknown whether a process is present.
pub(crate) const NOT_REPORTED: &str = "its device did not report its processes";

fn distance_to_limit(held: &ViolationDetails) -> u64 {
    held.measured.map_or(0, |it| it.value.abs_diff(it.limit))
}

impl ViolationDetails {
    /// A violation of an access rule.
    pub(crate) const fn for_access(run: Vec<usize>) -> Self {
        Self {
            measured: None,
            since: None,
            runs: run,
            unknown: 0,
            excess: Excess::All,
            threat: None,
        }
    }

    pub(crate) fn evidence(
        &self,
        context: &EvaluationContext<'_>,
        since: Timestamp,
    ) -> LazyEvidence {
        LazyEvidence {
            measured: self.measured,
            since,
            runs: observed_runs(context, &self.runs),
            count: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            unknown: self.unknown,
            threat: self.threat,
            is_service_only_warned: false,
        }
    }
}

/// The runs that hold most memory come first. If not all can be reported, one run of each
/// person precedes further runs, so that each person is warned.
pub(crate) fn observed_runs(context: &EvaluationContext<'_>, runs: &[usize]) -> Vec<ObservedRun> {
    let mut runs = runs.to_vec();
    let by_memory = |run: &usize| (Reverse(context.runs[*run].memory.value), *run);
    runs.sort_indirect_by_key(by_memory);
    if runs.len() > MAX_EVIDENCE_PROCESSES {
        let mut people = BTreeSet::new();
        let is_first = |run: &usize| people.insert(context.runs[*run].person);
        let (mut listed, others): (Vec<usize>, Vec<usize>) = runs.into_iter().partition(is_first);
        listed.extend(others);
        listed.truncate(MAX_EVIDENCE_PROCESSES);
        listed.sort_indirect_by_key(by_memory);
        runs = listed;
    }
    runs.into_iter()
        .map(|run| observed_run(context, run))
        .collect()
}

fn observed_run(context: &EvaluationContext<'_>, run: usize) -> ObservedRun {
    let run = &context.runs[run];
    let usage = &run.sample.usage;
    ObservedRun {
        run: Arc::clone(run.key),
        facts: Arc::clone(&run.sample.facts),
        gpu_index: run.device.map_or(0, |it| context.devices[it].1.index),
        memory: usage.memory.mean(),
        utilization: usage
            .utilization
            .mean()
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
        clients: usage
            .connections
            .max
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
    }
}
