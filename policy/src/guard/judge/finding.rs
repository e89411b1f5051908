//! What was found in one bucket: which conditions hold, by what they are known, and of
//! which it cannot be told. Of all others, it is known that they do not hold.

use super::super::memory::proof::{Proof, Seen};
use super::book::Policy;
use super::scene::Scene;
use gpukill_proto::guard::{MOST_TOLD, Measured, RuleKind};
use gpukill_proto::rogue::Threat;
use gpukill_proto::units::Timestamp;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is found, by rule and subject.
pub(crate) struct Findings {
    pub(crate) of: BTreeMap<(Policy, RuleKind), BTreeMap<Whom, Finding>>,
    /// For so many more there is room.
    room: usize,
    /// So many there was no room for.
    pub(crate) beyond: usize,
}

/// A subject, by its positions in the scene; a group by that in the rules. Most of what
/// is found is told to nobody: names are looked up where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whom {
    Person(usize),
    /// On which device.
    PersonOn(usize, usize),
    Group(usize),
    /// On which device.
    GroupOn(usize, usize),
    Device(usize),
    Job(usize),
    Run(usize),
}

pub(crate) enum Finding {
    Holds(Held),
    /// It cannot be told, and why.
    Unknown(Cow<'static, str>),
    /// It held by the readings before this bucket, which has none: what was found before
    /// stands, and nothing comes of it.
    Stale,
}

/// A condition that holds.
pub(crate) struct Held {
    pub(crate) measured: Option<Measured>,
    /// Where that is not since the first bucket in which it held.
    pub(crate) since: Option<Timestamp>,
    /// Positions in the scene.
    pub(crate) runs: Vec<usize>,
    /// Of how many of these something is not known that would add to the number.
    pub(crate) unknown: u32,
    /// What would have to go.
    pub(crate) excess: Excess,
    /// What it is taken for, where that is what is wrong.
    pub(crate) threat: Option<Threat>,
}

/// What would have to go so that a condition no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    Bytes(u64),
    Processes(u64),
    Percent(u64),
    /// All of it.
    All,
}

impl Excess {
    /// What is left of it without so much; `None` where that is enough.
    pub(crate) fn without(self, freed: u64) -> Option<Self> {
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
    /// With room for so many.
    pub(crate) const fn within(room: usize) -> Self {
        Self {
            of: BTreeMap::new(),
            room,
            beyond: 0,
        }
    }

    /// That it holds counts for more than that it cannot be told, and of two that hold
    /// the one that is further beyond what is allowed.
    pub(crate) fn add(&mut self, policy: Policy, kind: RuleKind, whom: Whom, new: Finding) {
        let old = self.of.get(&(policy, kind)).and_then(|it| it.get(&whom));
        let replaces = match (old, &new) {
            (None, _) if self.room == 0 => {
                self.beyond += 1;
                return;
            }
            (None, _) => {
                self.room -= 1;
                true
            }
            (Some(Finding::Unknown(_) | Finding::Stale), Finding::Holds(_)) => true,
            (Some(_), Finding::Unknown(_) | Finding::Stale) => false,
            (Some(Finding::Holds(old)), Finding::Holds(new)) => beyond(old) < beyond(new),
        };
        if replaces {
            let of_rule = self.of.entry((policy, kind)).or_default();
            of_rule.insert(whom, new);
        }
    }

    pub(crate) fn holds(&mut self, policy: Policy, kind: RuleKind, whom: Whom, held: Held) {
        self.add(policy, kind, whom, Finding::Holds(held));
    }

    /// It held by older readings, and nothing is known of now.
    pub(crate) fn stale(&mut self, policy: Policy, kind: RuleKind, whom: Whom) {
        self.add(policy, kind, whom, Finding::Stale);
    }

    /// It holds, unless what a process says of itself is true.
    pub(crate) fn holds_unless(
        &mut self,
        (policy, doubt): (Policy, Option<&'static str>),
        kind: RuleKind,
        whom: Whom,
        held: Held,
    ) {
        match doubt {
            None => self.holds(policy, kind, whom, held),
            Some(why) => self.unknown(policy, kind, whom, why),
        }
    }

    pub(crate) fn unknown(
        &mut self,
        policy: Policy,
        kind: RuleKind,
        whom: Whom,
        why: impl Into<Cow<'static, str>>,
    ) {
        self.add(policy, kind, whom, Finding::Unknown(why.into()));
    }
}

/// Why it is not known what holds for a job of Slurm.
pub(crate) const ACCOUNT: &str = "its account is what it says itself";

/// Why it is not known whether a process is there.
pub(crate) const UNTOLD: &str = "its device did not tell who uses it";

fn beyond(held: &Held) -> u64 {
    held.measured.map_or(0, |it| it.value.abs_diff(it.limit))
}

impl Held {
    /// Something that is not allowed at all.
    pub(crate) const fn access(run: Vec<usize>) -> Self {
        Self {
            measured: None,
            since: None,
            runs: run,
            unknown: 0,
            excess: Excess::All,
            threat: None,
        }
    }

    pub(crate) fn proof(&self, scene: &Scene<'_>, since: Timestamp) -> Proof {
        Proof {
            measured: self.measured,
            since,
            runs: seen(scene, &self.runs),
            count: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            unknown: self.unknown,
            threat: self.threat,
            is_spared_service: false,
        }
    }
}

/// Those that hold most, first; where not all are told of, one of each person before
/// others, so that each is warned.
pub(crate) fn seen(scene: &Scene<'_>, runs: &[usize]) -> Vec<Seen> {
    let mut runs = runs.to_vec();
    let by_memory = |run: &usize| (Reverse(scene.runs[*run].memory.value), *run);
    runs.sort_unstable_by_key(by_memory);
    if runs.len() > MOST_TOLD {
        let mut people = BTreeSet::new();
        let is_first = |run: &usize| people.insert(scene.runs[*run].person);
        let (mut told, others): (Vec<usize>, Vec<usize>) = runs.into_iter().partition(is_first);
        told.extend(others);
        told.truncate(MOST_TOLD);
        told.sort_unstable_by_key(by_memory);
        runs = told;
    }
    runs.into_iter().map(|run| see(scene, run)).collect()
}

fn see(scene: &Scene<'_>, run: usize) -> Seen {
    let run = &scene.runs[run];
    let usage = &run.judged.usage;
    Seen {
        run: Arc::clone(run.key),
        about: Arc::clone(&run.judged.about),
        gpu_index: run.device.map_or(0, |it| scene.devices[it].1.index),
        memory: usage.memory.mean(),
        utilization: usage
            .utilization
            .mean()
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
        clients: usage
            .connections
            .most
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
    }
}
