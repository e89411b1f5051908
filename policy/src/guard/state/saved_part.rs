//! The part of the state that is saved where the whole is too large for a file.
//!
//! The circuit breaker, snoozes, ended jobs and enforcements in progress are always kept. Of the
//! rest, windows that rules look back over are dropped first: they fill again. Then follows what
//! is known of jobs, and violations last. Of each, people have equal shares.

use super::super::violation_places::{PlaceOwner, PlaceRank, order_by_share};
use super::{BehaviourState, GuardState, JobKey, MatchCache, RuleViolations};
use crate::round_robin::interleave;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{GuardAction, GuardMode, RuleName, RunKey, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How much of the state is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedPart {
    violations: usize,
    jobs: usize,
    /// Jobs, and processes, with windows.
    windows: usize,
}

/// The largest number in a part; smaller ones are a quarter of the one before.
const MAX_KEPT: usize = 16_384;

/// Below this number nothing is kept: so little is no use.
const MIN_KEPT: usize = 64;

impl SavedPart {
    /// The whole state.
    pub const WHOLE: Self = Self {
        violations: usize::MAX,
        jobs: usize::MAX,
        windows: usize::MAX,
    };

    /// The next smaller part; `None` if this one has nothing but what is always kept.
    #[must_use]
    pub fn reduced(self) -> Option<Self> {
        if let Some(windows) = next_smaller(self.windows) {
            return Some(Self { windows, ..self });
        }
        if let Some(jobs) = next_smaller(self.jobs) {
            return Some(Self { jobs, ..self });
        }
        next_smaller(self.violations).map(|violations| Self { violations, ..self })
    }

    /// The part that [`SavedPart::reduced`] makes this one of; the whole of the whole.
    #[must_use]
    pub fn enlarged(self) -> Self {
        let mut larger = Self::WHOLE;
        while let Some(smaller) = larger.reduced().filter(|smaller| *smaller != self) {
            larger = smaller;
        }
        match self == Self::WHOLE {
            true => self,
            false => larger,
        }
    }
}

fn next_smaller(count: usize) -> Option<usize> {
    match count {
        0 => None,
        1..=MIN_KEPT => Some(0),
        _ => Some((count / 4).min(MAX_KEPT)),
    }
}

impl GuardState {
    /// A copy of this part of the state.
    #[must_use]
    pub fn to_part(&self, part: SavedPart) -> Self {
        let person_of_run = |run: &RunKey| {
            let known = self.cache.processes.get(&(run.pid, run.start_ticks));
            known.and_then(|known| known.facts.owner.as_ref()?.uid)
        };
        let person_of_job = |job: &JobKey| job.uid;
        let rules = self.conduct.values();
        let of_jobs = rules.flat_map(|it| it.waste.keys().chain(it.cpu.keys()));
        let rules = self.conduct.values();
        let of_runs = rules.flat_map(|it| it.runaway.keys().chain(it.growth.keys()));
        let of_runs = of_runs.chain(self.loads.keys());
        let of_jobs = select(of_jobs.map(Arc::as_ref), person_of_job, part.windows);
        let of_runs = select(of_runs.map(Arc::as_ref), person_of_run, part.windows);
        let jobs = select(self.jobs.keys().map(Arc::as_ref), person_of_job, part.jobs);
        let conduct = self.conduct.iter().map(|(rule, state)| {
            let state = BehaviourState {
                digest: state.digest,
                waste: copy_kept(&state.waste, &of_jobs),
                runaway: copy_kept(&state.runaway, &of_runs),
                cpu: copy_kept(&state.cpu, &of_jobs),
                growth: copy_kept(&state.growth, &of_runs),
            };
            (rule.clone(), state)
        });
        Self {
            until: self.until,
            by: self.by,
            jobs: copy_kept(&self.jobs, &jobs),
            loads: copy_kept(&self.loads, &of_runs),
            devices: self.devices.clone(),
            conduct: conduct.into_map(),
            violations: self.select_violations(part.violations),
            ended: self.ended.clone(),
            cooling: self.cooling.clone(),
            breaker: self.breaker.clone(),
            doubt_tracker: self.doubt_tracker.clone(),
            snoozes: self.snoozes.clone(),
            device_reporting: self.device_reporting.clone(),
            moved: self.moved.clone(),
            cache: MatchCache::default(),
        }
    }

    /// The most important violations, by the shares of people.
    fn select_violations(&self, count: usize) -> BTreeMap<RuleName, RuleViolations> {
        let mut places = Vec::new();
        for (rule, of_rule) in &self.violations {
            for (subject, violation) in &of_rule.of {
                let owner = PlaceOwner::from_violation(subject, violation, places.len());
                let opened = violation.opened.as_ref();
                let is_of_process =
                    matches!(subject, ViolationSubject::Job(_) | ViolationSubject::Run(_));
                let rank = PlaceRank {
                    action: opened.map_or(GuardAction::Warn, |it| it.action),
                    mode: opened.map_or(GuardMode::Disabled, |it| it.mode),
                    is_of_person: !is_of_process,
                    progress: violation.into(),
                };
                places.push((owner, rank, (rule, subject)));
            }
        }
        let kept = order_by_share(places).into_iter().take(count);
        let kept: BTreeSet<(&RuleName, &ViolationSubject)> = kept.into_set();
        let of_rules = self.violations.iter().map(|(rule, of_rule)| {
            let of = of_rule.of.iter();
            let of = of.filter(|(subject, _)| kept.contains(&(rule, *subject)));
            let of = of.map(|(subject, violation)| (subject.clone(), violation.clone()));
            let of_rule = RuleViolations {
                digest: of_rule.digest,
                of: of.into_map(),
            };
            (rule.clone(), of_rule)
        });
        of_rules.into_map()
    }
}

/// Selects so many of these keys, by the shares of people.
fn select<'k, K: Ord + 'k>(
    keys: impl Iterator<Item = &'k K>,
    person: impl Fn(&K) -> Option<u32>,
    count: usize,
) -> BTreeSet<&'k K> {
    // Several rules may have windows for a key.
    let keys = keys.into_set().into_iter();
    let by_share = keys.map(|key| (person(key), key));
    interleave(by_share).into_iter().take(count).into_set()
}

fn copy_kept<K: Ord, V: Clone>(
    map: &BTreeMap<Arc<K>, V>,
    kept: &BTreeSet<&K>,
) -> BTreeMap<Arc<K>, V> {
    let is_kept = |(key, _): &(&Arc<K>, &V)| {
        let key: &K = key;
        kept.contains(key)
    };
    let entries = map.iter().filter(is_kept);
    entries
        .map(|(key, value)| (Arc::clone(key), value.clone()))
        .into_map()
}
