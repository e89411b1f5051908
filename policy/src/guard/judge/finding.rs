//! What was found in one bucket: which conditions hold, by what they are known, and of
//! which it cannot be told. Of all others, it is known that they do not hold.

use super::book::Policy;
use super::scene::Scene;
use gpukill_proto::guard::{Evidence, JudgedRun, MOST_TOLD, Measured, RuleKind, Subject, Told};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What is found, by rule and subject.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) of: BTreeMap<(Policy, RuleKind), BTreeMap<Subject, Finding>>,
}

pub(crate) enum Finding {
    Holds(Held),
    /// It cannot be told, and why.
    Unknown(String),
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

impl Findings {
    /// That it holds counts for more than that it cannot be told, and of two that hold
    /// the one that is further beyond what is allowed.
    pub(crate) fn add(&mut self, policy: Policy, kind: RuleKind, subject: Subject, new: Finding) {
        let of_rule = self.of.entry((policy, kind)).or_default();
        let replaces = match (of_rule.get(&subject), &new) {
            (None, _) | (Some(Finding::Unknown(_)), Finding::Holds(_)) => true,
            (Some(_), Finding::Unknown(_)) => false,
            (Some(Finding::Holds(old)), Finding::Holds(new)) => beyond(old) < beyond(new),
        };
        if replaces {
            of_rule.insert(subject, new);
        }
    }

    pub(crate) fn holds(&mut self, policy: Policy, kind: RuleKind, subject: Subject, held: Held) {
        self.add(policy, kind, subject, Finding::Holds(held));
    }

    /// It holds, unless what a process says of itself is true.
    pub(crate) fn holds_unless(
        &mut self,
        (policy, doubt): (Policy, Option<&str>),
        kind: RuleKind,
        subject: Subject,
        held: Held,
    ) {
        match doubt {
            None => self.holds(policy, kind, subject, held),
            Some(why) => self.unknown(policy, kind, subject, why),
        }
    }

    pub(crate) fn unknown(
        &mut self,
        policy: Policy,
        kind: RuleKind,
        subject: Subject,
        why: impl Into<String>,
    ) {
        self.add(policy, kind, subject, Finding::Unknown(why.into()));
    }
}

/// Why it is not known what holds for a job of Slurm.
pub(crate) const ACCOUNT: &str = "its account is what it says itself";

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
        }
    }

    pub(crate) fn evidence(&self, scene: &Scene<'_>, since: Timestamp) -> Evidence {
        Evidence {
            measured: self.measured,
            since,
            runs: told(scene, &self.runs),
            count: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            unknown: self.unknown,
        }
    }
}

/// Those that hold most, first.
pub(crate) fn told(scene: &Scene<'_>, runs: &[usize]) -> Vec<Told> {
    let mut runs = runs.to_vec();
    let by_memory = |run: &usize| (Reverse(scene.runs[*run].memory.value), *run);
    if runs.len() > MOST_TOLD {
        runs.select_nth_unstable_by_key(MOST_TOLD, by_memory);
        runs.truncate(MOST_TOLD);
    }
    runs.sort_unstable_by_key(by_memory);
    runs.into_iter().map(|run| tell(scene, run)).collect()
}

fn tell(scene: &Scene<'_>, run: usize) -> Told {
    let run = &scene.runs[run];
    let usage = &run.judged.usage;
    let about = &run.judged.about;
    Told {
        run: JudgedRun::clone(run.key),
        gpu_index: run.device.map_or(0, |it| scene.devices[it].1.index),
        owner: about.owner.clone(),
        name: about.name.clone(),
        memory: usage.memory.mean(),
        utilization: usage
            .utilization
            .mean()
            .map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
        job: about.job.as_ref().map(|(_, shown)| shown.clone()),
    }
}
