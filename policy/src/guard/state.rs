//! The state of the guard from one sample to the next. It can be saved and restored, and
//! goes on from there. What is gone from the host is dropped.

pub(crate) mod claim;
pub(crate) mod device_reporting;
pub(crate) mod evidence;
pub(crate) mod pairs;
mod saved_part;
pub(crate) mod streak;
pub(crate) mod window;

use super::enforcement::breaker::CircuitBreaker;
use super::enforcement::ended_jobs::{EndedJob, PidStart, SimulatedEnd};
use super::evaluate::{
    CompiledRules, DeviceNames, PolicyDevices, PolicyMatch, device_names, has_device_names,
};
use super::limits::milliseconds;
use super::rule_doubt::DoubtTracker;
use super::sample::{GuardSample, ProcessFacts};
use super::snoozes::SnoozeList;
use super::violation_state::ViolationState;
use crate::digest::Digest;
use claim::Claim;
use device_reporting::DeviceReporting;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{OpenViolation, RuleName, RunKey, ViolationSubject};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
pub use saved_part::SavedPart;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use streak::Streak;
use window::{MemorySum, UtilizationSum, WasteSum, Window};

/// The state of the guard from one sample to the next.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GuardState {
    /// End of the newest evaluated sample.
    pub(crate) until: Option<Timestamp>,
    /// The settings that the rest depends on: the idle threshold in percent, and the
    /// utilization window in milliseconds.
    pub(crate) by: (u32, u64),
    /// Activity of each job.
    #[serde(with = "pairs::shared")]
    pub(crate) jobs: BTreeMap<Arc<JobKey>, JobState>,
    /// Utilization of each process.
    #[serde(with = "pairs::shared")]
    pub(crate) loads: BTreeMap<Arc<RunKey>, Window<UtilizationSum>>,
    /// Utilization of each device.
    #[serde(with = "pairs")]
    pub(crate) devices: BTreeMap<DeviceId, Window<UtilizationSum>>,
    /// State of each behaviour rule.
    #[serde(with = "pairs")]
    pub(crate) conduct: BTreeMap<RuleName, BehaviourState>,
    /// Violation states, confirmed or not.
    #[serde(with = "pairs")]
    pub(crate) violations: BTreeMap<RuleName, RuleViolations>,
    /// Jobs that were ended and still have processes.
    #[serde(with = "pairs")]
    pub(crate) ended: BTreeMap<JobKey, EndedJob>,
    /// Devices on which a job was ended a short while ago, and when.
    #[serde(with = "pairs")]
    pub(crate) cooling: BTreeMap<DeviceId, Timestamp>,
    pub(crate) breaker: CircuitBreaker,
    /// Whether behaviour rules affect too many people.
    pub(crate) doubt_tracker: DoubtTracker,
    pub(crate) snoozes: SnoozeList,
    /// Which devices have reported their processes.
    pub(crate) device_reporting: DeviceReporting,
    /// Processes that are now part of another job than at first.
    #[serde(with = "pairs")]
    pub(crate) moved: BTreeMap<PidStart, MovedProcess>,
    #[serde(skip)]
    pub(crate) cache: MatchCache,
}

/// Key of a person's job. It has no names, of the person or of a container: these may
/// change while the job runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JobKey {
    /// `None` if the owner has no uid, such as a container.
    pub(crate) uid: Option<u32>,
    pub(crate) id: String,
}

/// A process that is now part of another job than at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovedProcess {
    /// The first job, which it still counts for.
    first: JobKey,
    /// When it was first seen in another.
    since: Timestamp,
}

/// How long a process counts for a job that it is no longer part of. Workers of a launcher
/// that died end, or are ended, within this time; what still runs goes on by itself, and
/// `list` and `kill` show it as jobs of their own.
const MOVED_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Activity of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobState {
    /// How `list` showed it at first: the job keeps that name.
    pub(crate) shown: String,
    /// The job does nothing.
    pub(crate) idle_streak: Streak,
    /// The job does nothing, and has no client.
    pub(crate) unconnected_streak: Streak,
    /// Its claim on each device.
    #[serde(with = "pairs")]
    pub(crate) claims: BTreeMap<DeviceId, Claim>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BehaviourState {
    /// The digest of the rule.
    pub(crate) digest: Digest,
    #[serde(with = "pairs::shared")]
    pub(crate) waste: BTreeMap<Arc<JobKey>, Window<WasteSum>>,
    #[serde(with = "pairs::shared")]
    pub(crate) runaway: BTreeMap<Arc<RunKey>, RunawayState>,
    /// The job uses little CPU time.
    #[serde(with = "pairs::shared")]
    pub(crate) cpu: BTreeMap<Arc<JobKey>, Streak>,
    #[serde(with = "pairs::shared")]
    pub(crate) growth: BTreeMap<Arc<RunKey>, Window<MemorySum>>,
}

impl BehaviourState {
    /// Drops windows, and keeps streaks, which tolerate a short time without readings.
    fn clear_windows(&mut self) -> &mut Self {
        self.waste.clear();
        self.runaway.clear();
        self.growth.clear();
        self
    }

    /// Gives a job the measurements of another one, unless it has its own.
    fn copy_job(&mut self, from: &JobKey, to: &Arc<JobKey>) {
        if let (Some(window), None) = (self.waste.get(from), self.waste.get(to.as_ref())) {
            let window = window.clone();
            self.waste.insert(Arc::clone(to), window);
        }
        if let (Some(streak), None) = (self.cpu.get(from), self.cpu.get(to.as_ref())) {
            let streak = *streak;
            self.cpu.insert(Arc::clone(to), streak);
        }
    }
}

/// A process that works without a break, and the most memory that it held meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunawayState {
    pub(crate) at_work: Streak,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleViolations {
    /// The digest of the rule.
    pub(crate) digest: Digest,
    #[serde(with = "pairs")]
    pub(crate) of: BTreeMap<ViolationSubject, ViolationState>,
}

/// Results that stay valid until other facts become known.
#[derive(Debug, Clone, Default)]
pub(crate) struct MatchCache {
    rule_set: Option<Digest>,
    device_names: DeviceNames,
    policy_devices: Arc<PolicyDevices>,
    processes: BTreeMap<PidStart, CachedMatch>,
    generation: u64,
}

#[derive(Debug, Clone)]
struct CachedMatch {
    facts: Arc<ProcessFacts>,
    policy_match: Arc<PolicyMatch>,
    generation: u64,
}

impl GuardState {
    /// The open violations.
    #[must_use]
    pub fn violations(&self) -> Vec<OpenViolation> {
        let violations = self.violations.iter().flat_map(|(rule, violations)| {
            let of = violations.of.iter();
            of.filter_map(|(subject, violation)| violation.to_open_violation(rule, subject))
        });
        let at = self.until.unwrap_or_default();
        let with_snoozes = violations.map(|open| OpenViolation {
            snoozed_until: self.snoozes.snoozed_until(&open, at),
            ..open
        });
        with_snoozes.collect()
    }

    /// The jobs that a dry run counts as ended and that are still present, each with its
    /// violation.
    #[must_use]
    pub fn simulated_ends(&self) -> Vec<SimulatedEnd> {
        let violations = self
            .violations
            .values()
            .flat_map(|violations| violations.of.values());
        let opened = violations.filter_map(|violation| violation.opened.as_ref());
        opened
            .flat_map(|it| it.simulated.values().cloned())
            .collect()
    }

    /// Prepares the state for a sample: drops what changed settings or a gap invalidate.
    /// Returns whether the sample follows the last one.
    pub(crate) fn prepare_for(
        &mut self,
        compiled_rules: &CompiledRules,
        sample: &GuardSample,
    ) -> bool {
        let enforcement = &compiled_rules.rules().enforcement;
        let window = milliseconds(enforcement.utilization_window);
        let by = (enforcement.idle_below.0, window);
        if self.by.0 != by.0 {
            self.jobs.clear();
        }
        if self.by.1 != by.1 {
            self.loads.clear();
            self.devices.clear();
        }
        self.by = by;
        let follows = match self.until {
            Some(until) => is_contiguous(until, sample),
            None => do_clocks_agree(sample),
        };
        if !follows {
            self.loads.clear();
            self.devices.clear();
            let ms = self.unobserved_ms(sample);
            let own = self.conduct.values_mut();
            let own = own.flat_map(|it| it.clear_windows().cpu.values_mut());
            let of_jobs = self.jobs.values_mut();
            let of_jobs =
                of_jobs.flat_map(|job| [&mut job.idle_streak, &mut job.unconnected_streak]);
            for streak in of_jobs.chain(own) {
                streak.record_unknown(ms, sample.until);
            }
            for violation in self
                .violations
                .values_mut()
                .flat_map(|it| it.of.values_mut())
            {
                violation.record_unknown();
            }
        }
        if let Some(undetermined) = self.until.map(|until| unobserved_wall_ms(until, sample))
            && undetermined.unsigned_abs() > MAX_GAP_MS
        {
            for violation in self
                .violations
                .values_mut()
                .flat_map(|it| it.of.values_mut())
            {
                violation.shift_time(undetermined);
            }
            for ended in self.ended.values_mut() {
                ended.shift_time(undetermined);
            }
            for since in self.cooling.values_mut() {
                *since = Timestamp(since.0.saturating_add(undetermined));
            }
            for moved in self.moved.values_mut() {
                moved.since = Timestamp(moved.since.0.saturating_add(undetermined));
            }
            if undetermined < 0 {
                let jobs = self.jobs.values_mut();
                let claims = jobs.flat_map(|job| job.claims.values_mut());
                claims.for_each(|claim| claim.shift_time(undetermined));
            }
            self.breaker.shift_time(undetermined);
            self.snoozes.shift_time(undetermined);
        }
        self.device_reporting.update(sample, follows);
        self.until = Some(sample.until);
        // If only the response to a rule has changed, its measurements stay valid.
        self.conduct.retain_entries(|rule, memory| {
            let policy = compiled_rules.find(&rule.source);
            policy.is_some_and(|policy| compiled_rules.measured_digest(policy) == memory.digest)
        });
        follows
    }

    /// Unobserved milliseconds up to the end of this sample; `u64::MAX` if the wall clock
    /// was set back.
    fn unobserved_ms(&self, sample: &GuardSample) -> u64 {
        let last = self.until.filter(|last| *last <= sample.until);
        last.map_or(u64::MAX, |last| milliseconds(sample.until.since(last)))
    }

    /// Drops the utilization windows of devices on which a job was ended: its work says
    /// nothing about the others.
    pub(crate) fn clear_utilization(&mut self, is_one: impl Fn(&DeviceId) -> bool) {
        self.loads.retain_entries(|run, _| !is_one(&run.device));
        self.devices.retain_entries(|device, _| !is_one(device));
    }

    /// The devices that the policies apply to.
    pub(crate) fn policy_devices(
        &mut self,
        compiled_rules: &CompiledRules,
        sample: &GuardSample,
    ) -> Arc<PolicyDevices> {
        if self.cache.rule_set != Some(compiled_rules.digest()) {
            self.cache = MatchCache {
                rule_set: Some(compiled_rules.digest()),
                ..MatchCache::default()
            };
        } else if has_device_names(sample, &self.cache.device_names) {
            return Arc::clone(&self.cache.policy_devices);
        }
        self.cache.device_names = device_names(sample);
        self.cache.policy_devices = Arc::new(PolicyDevices::resolve(
            compiled_rules.rules(),
            &self.cache.device_names,
        ));
        Arc::clone(&self.cache.policy_devices)
    }

    /// The policies that apply to a process. Needs [`GuardState::policy_devices`] first.
    pub(crate) fn policy_match(
        &mut self,
        compiled_rules: &CompiledRules,
        run: &RunKey,
        facts: &Arc<ProcessFacts>,
    ) -> Arc<PolicyMatch> {
        let process = (run.pid, run.start_ticks);
        let generation = self.cache.generation;
        if let Some(known) = self.cache.processes.get_mut(&process)
            && (Arc::ptr_eq(&known.facts, facts) || known.facts == *facts)
        {
            known.generation = generation;
            return Arc::clone(&known.policy_match);
        }
        let mut selected = PolicyMatch::new(compiled_rules.rules(), facts, Some(process));
        selected.job_key = selected
            .job_key
            .map(|now| self.first_job(process, facts, now));
        let selected = Arc::new(selected);
        let known = CachedMatch {
            facts: Arc::clone(facts),
            policy_match: Arc::clone(&selected),
            generation,
        };
        self.cache.processes.insert(process, known);
        selected
    }

    /// The job that a process counts for: the one that it was part of at first. Its
    /// violation states go on when its parent ends, and when its owner moves it from one
    /// cgroup to another. [`GuardState::release_moved`] ends that.
    fn first_job(
        &mut self,
        process: PidStart,
        facts: &ProcessFacts,
        now: Arc<JobKey>,
    ) -> Arc<JobKey> {
        let known = self.cache.processes.get(&process);
        let is_elsewhere = known.is_some_and(|known| !known.facts.has_same_placement(facts));
        let moved = self.moved.get(&process).map(|it| &it.first);
        let was = known.filter(|known| known.facts.job.is_some());
        let was = was.and_then(|known| known.policy_match.job_key.as_deref());
        let first = moved.or(was).filter(|_| !is_elsewhere);
        let Some(first) = first.filter(|first| first.uid == now.uid).cloned() else {
            self.moved.remove(&process);
            return now;
        };
        if first == *now {
            self.moved.remove(&process);
            return now;
        }
        if !self.moved.contains_key(&process) {
            let (first, since) = (first.clone(), self.until.unwrap_or_default());
            self.moved.insert(process, MovedProcess { first, since });
        }
        Arc::new(first)
    }

    /// Lets processes that left their first job long ago count for their present ones,
    /// unless a job may be ended for a violation of the first. A present job that is new
    /// has the activity of the first: a move gains no time.
    pub(crate) fn release_moved(&mut self) {
        let now = self.until.unwrap_or_default();
        let is_due = |it: &MovedProcess| now.since(it.since) >= MOVED_TIMEOUT;
        if !self.moved.values().any(is_due) {
            return;
        }
        let Self {
            violations,
            ended,
            cache,
            jobs,
            conduct,
            moved,
            ..
        } = self;
        let violations = violations.values().flat_map(|it| &it.of);
        let ending = violations.filter_map(|(subject, violation)| match subject {
            ViolationSubject::Job(job) => violation
                .may_end_job()
                .then_some((job.owner.uid, job.id.as_str())),
            ViolationSubject::Person(_)
            | ViolationSubject::PersonOn(..)
            | ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_)
            | ViolationSubject::Run(_) => None,
        });
        let mut ending: Vec<(Option<u32>, &str)> = ending.collect();
        ending.sort_indirect();
        moved.retain_entries(|process, it| {
            let first = &it.first;
            let of_violation = ending.binary_search(&(first.uid, first.id.as_str()));
            let is_ending = ended.contains_key(first) || of_violation.is_ok();
            let known = cache.processes.get_mut(process);
            let known = known.filter(|known| known.facts.job.is_some());
            let Some(known) = known.filter(|_| is_due(it) && !is_ending) else {
                return true;
            };
            let (id, shown) = known.policy_match.job.clone();
            let key = Arc::new(JobKey { uid: first.uid, id });
            if let (Some(activity), None) = (jobs.get(first), jobs.get(key.as_ref())) {
                let activity = activity.clone();
                jobs.insert(Arc::clone(&key), JobState { shown, ..activity });
            }
            for state in conduct.values_mut() {
                state.copy_job(first, &key);
            }
            known.policy_match = Arc::new(PolicyMatch {
                job_key: Some(key),
                ..PolicyMatch::clone(&known.policy_match)
            });
            false
        });
    }

    /// Drops the processes that were not requested since the last call.
    pub(crate) fn prune_cache(&mut self) {
        let now = self.cache.generation;
        let known = &mut self.cache.processes;
        known.retain_entries(|_, known| known.generation == now);
        self.moved
            .retain_entries(|process, _| known.contains_key(process));
        self.cache.generation = now.wrapping_add(1);
    }
}

/// Drops all other keys than these `count`, all of which are in the map.
pub(crate) fn retain_keys<'k, K: Ord + 'k, V>(
    map: &mut BTreeMap<K, V>,
    count: usize,
    present: impl Iterator<Item = &'k K>,
) {
    // Usually no key has gone.
    if map.len() != count {
        let present: BTreeSet<&K> = present.into_set();
        map.retain_entries(|key, _| present.contains(key));
    }
}

/// Whether a rule still has this digest.
pub(crate) fn is_current(compiled_rules: &CompiledRules, rule: &RuleName, digest: Digest) -> bool {
    compiled_rules
        .find(&rule.source)
        .is_some_and(|policy| compiled_rules.policy_digest(policy) == digest)
}

/// Unobserved milliseconds that count as observed: samples are ten seconds each, and a
/// restarted daemon is back sooner.
const MAX_GAP_MS: u64 = 30_000;

/// Unobserved milliseconds up to the end of a sample, by the wall clock; negative if it was
/// set back.
fn unobserved_wall_ms(last: Timestamp, sample: &GuardSample) -> i64 {
    let observed_ms = i64::try_from(sample.observed_ms).unwrap_or(i64::MAX);
    let wall_ms = sample.until.0.saturating_sub(last.0);
    wall_ms.saturating_sub(observed_ms)
}

/// Whether a sample begins where the last one ended, and was observed as a whole, by clocks
/// that agree.
fn is_contiguous(last: Timestamp, sample: &GuardSample) -> bool {
    let apart = last.0.abs_diff(sample.from.0);
    sample.observed_ms > 0 && apart <= slack(sample) && do_clocks_agree(sample)
}

/// Whether the sample is as long by the wall clock as the time that was observed.
fn do_clocks_agree(sample: &GuardSample) -> bool {
    let length = milliseconds(sample.until.since(sample.from));
    length.abs_diff(sample.observed_ms) <= slack(sample)
}

/// A tenth and a second allow for polls that come late.
const fn slack(sample: &GuardSample) -> u64 {
    (sample.observed_ms / 10).saturating_add(1_000)
}
