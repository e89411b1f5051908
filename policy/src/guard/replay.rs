//! Evaluates rules on the past: sample by sample, with the code of the live guard.
//!
//! Whatever mode the rules set, it is a dry run: a job that would have been ended goes on
//! as it did, and its later usage counts as freed.

mod error;
mod names;
mod silent_devices;

use super::device_losses::DeviceLosses;
use super::enforcement::ended_jobs::PidStart;
use super::evaluate::{CompiledRules, Evaluation, EvaluationBounds, Overflow, evaluate_within};
use super::person_key::{PersonKey, PersonRef};
use super::rules::RuleSet;
use super::sample::{GuardSample, ProcessFacts};
use super::snoozes::SnoozeGrant;
use super::state::GuardState;
pub use error::ReplayError;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardStep, OpenViolation, RuleName, RuleOutcome, RunKey,
    UnevaluatedTime, Victim, ViolationSubject,
};
use gpukill_proto::units::Timestamp;
use names::UserNames;
use silent_devices::SilentDevices;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

/// How many records are kept; more are counted.
pub const MAX_RECORDS: usize = 1_000;

/// How many pairs of policy and process one sample may have: each policy may apply to each
/// process.
const MAX_PAIRS: usize = 1_000_000;

/// How many processes, people, and subjects that could not be evaluated are counted.
const MAX_COUNTED: usize = 200_000;

/// How many kinds of subjects that could not be evaluated are kept.
const MAX_NOT_JUDGED: usize = 100;

/// A replay in progress.
#[derive(Debug)]
pub struct Replay {
    compiled_rules: CompiledRules,
    /// No rules, for the time before `since`.
    no_rules: CompiledRules,
    since: Timestamp,
    memory: GuardState,
    /// The jobs that would have been ended, by owner and id, each with the first rule that ends
    /// it and its processes that are still present.
    ended_for: BTreeMap<(PersonKey, String), (RuleName, BTreeSet<PidStart>)>,
    evaluated: u64,
    people: DistinctCounter,
    names: UserNames,
    runs: DistinctCounter,
    /// The processes of the last sample, in its order.
    present: Vec<(Arc<RunKey>, Arc<ProcessFacts>)>,
    outcomes: BTreeMap<RuleName, RuleOutcome>,
    records: Vec<GuardRecord>,
    more_records: u64,
    not_evaluated: BTreeMap<(RuleName, String), UnevaluatedSubjects>,
    /// The number of subjects in `not_evaluated`.
    subjects: usize,
    silences: SilentDevices,
    losses: DeviceLosses,
}

#[derive(Debug, Default)]
struct UnevaluatedSubjects {
    first: Option<ViolationSubject>,
    subjects: DistinctCounter,
    for_ms: u64,
}

/// Counts different values. Names are long and many: the hash of each is kept, which two
/// hardly ever share.
#[derive(Debug, Default)]
struct DistinctCounter(BTreeSet<u64>);

impl DistinctCounter {
    /// Returns whether the value is new.
    fn add(&mut self, one: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        one.hash(&mut hasher);
        self.0.insert(hasher.finish())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayResult {
    /// Number of evaluated samples.
    pub evaluated: u64,
    /// Number of people who used a device.
    pub people: usize,
    /// Number of processes that used a device, counted for each device.
    pub runs: usize,
    /// The result of each rule that did anything, the one that freed most first.
    pub outcomes: Vec<RuleOutcome>,
    /// The oldest records first, at most [`MAX_RECORDS`].
    pub records: Vec<GuardRecord>,
    /// Number of further records.
    pub more_records: u64,
    /// Rules that were violated at the end.
    pub open: Vec<OpenViolation>,
    /// The subjects that could not be evaluated: devices, then rules, the longest first.
    pub not_evaluated: Vec<UnevaluatedTime>,
}

impl Replay {
    /// Replays these rules as if they had been in force since that moment. Earlier samples
    /// only build up the state: a job that is idle by then is idle.
    #[must_use]
    pub fn new(rules: RuleSet, since: Timestamp) -> Self {
        let nothing = RuleSet {
            enforcement: rules.enforcement.clone(),
            protect: rules.protect.clone(),
            ..RuleSet::default()
        };
        let rules = RuleSet {
            mode: GuardMode::DryRun,
            ..rules
        };
        Self {
            compiled_rules: CompiledRules::new(rules),
            no_rules: CompiledRules::new(nothing),
            since,
            memory: GuardState::default(),
            ended_for: BTreeMap::new(),
            evaluated: 0,
            people: DistinctCounter::default(),
            names: UserNames::default(),
            runs: DistinctCounter::default(),
            present: Vec::new(),
            outcomes: BTreeMap::new(),
            records: Vec::new(),
            more_records: 0,
            not_evaluated: BTreeMap::new(),
            subjects: 0,
            silences: SilentDevices::default(),
            losses: DeviceLosses::default(),
        }
    }

    /// Applies what is known now beyond the samples, before the newest sample: as
    /// [`GuardState::apply_losses`], which the guard calls before each.
    pub fn apply_losses(&mut self, losses: DeviceLosses, lives: &dyn Fn(u32, u64) -> bool) {
        self.memory.apply_losses(&losses, lives);
        self.losses = losses;
    }

    /// Adds a snooze that was granted by now. A snooze of a rule that these rules lack is
    /// ignored.
    pub fn add_snooze(&mut self, grant: SnoozeGrant) {
        if grant.has_rule(&self.compiled_rules) {
            self.memory.add_snooze(grant);
        }
    }

    /// Evaluates the next sample.
    ///
    /// # Errors
    /// If it would keep too much: the replay is then of no further use.
    pub fn add(&mut self, sample: &GuardSample) -> Result<(), ReplayError> {
        let tried = EvaluationBounds::TRIAL;
        self.silences.add(sample, sample.until > self.since);
        if sample.until <= self.since {
            let _ = evaluate_within(&tried, &self.no_rules, &mut self.memory, sample);
            return Ok(());
        }
        let (policies, processes) = (
            self.compiled_rules.rules().policy_count(),
            sample.runs.len(),
        );
        if policies.saturating_mul(processes) > MAX_PAIRS {
            return Err(ReplayError::Pairs(policies, processes));
        }
        self.evaluated += 1;
        self.count_present(sample);
        if self.runs.len() > MAX_COUNTED {
            return Err(ReplayError::Processes);
        }
        let Evaluation {
            records,
            undetermined,
            undetermined_omitted: _,
            overflow,
        } = evaluate_within(&tried, &self.compiled_rules, &mut self.memory, sample);
        match overflow {
            Overflow {
                lookback_windows: 1..,
                ..
            } => return Err(ReplayError::LookedBack),
            Overflow {
                violations: 1.., ..
            }
            | Overflow { findings: 1.., .. } => return Err(ReplayError::Violations),
            Overflow {
                findings: 0,
                violations: 0,
                lookback_windows: 0,
            } => {}
        }
        // Before the ends of this sample are added: those jobs held devices in all of it.
        self.add_freed(sample);
        for record in &records {
            self.count_record(record);
        }
        for undetermined in undetermined {
            let key = (undetermined.rule, undetermined.why);
            let unknown = self.not_evaluated.entry(key).or_default();
            self.subjects += usize::from(unknown.subjects.add(&undetermined.subject));
            unknown.for_ms = unknown.for_ms.saturating_add(sample.observed_ms);
            unknown.first.get_or_insert(undetermined.subject);
        }
        if self.subjects > MAX_COUNTED {
            return Err(ReplayError::NotJudged);
        }
        let room = MAX_RECORDS.saturating_sub(self.records.len());
        let more = records.len().saturating_sub(room);
        self.more_records = self.more_records.saturating_add(more as u64);
        self.records.extend(records.into_iter().take(room));
        Ok(())
    }

    /// Records the present processes. Most were in the last sample.
    fn count_present(&mut self, sample: &GuardSample) {
        let present = sample.runs.iter();
        let present =
            present.map(|(run, run_sample)| (Arc::clone(run), Arc::clone(&run_sample.facts)));
        let before = std::mem::replace(&mut self.present, present.collect());
        let mut before = before.iter().peekable();
        for now in &self.present {
            let is_same = |old: &&(Arc<RunKey>, Arc<ProcessFacts>)| {
                Arc::ptr_eq(&old.0, &now.0) && Arc::ptr_eq(&old.1, &now.1)
            };
            let (run, facts) = now;
            while before
                .next_if(|old| !is_same(old) && old.0 < *run)
                .is_some()
            {}
            if before.next_if(is_same).is_some() {
                continue;
            }
            self.runs.add(run);
            if let Some(owner) = &facts.owner {
                self.people.add(&PersonRef::from(owner));
                self.names.learn(owner);
            }
        }
    }

    /// Adds the usage of jobs that would have been gone.
    fn add_freed(&mut self, sample: &GuardSample) {
        if self.ended_for.is_empty() {
            return;
        }
        // How long each process held devices.
        let mut held: BTreeMap<PidStart, u64> = BTreeMap::new();
        for (run, run_sample) in &sample.runs {
            let of_process = held.entry((run.pid, run.start_ticks)).or_default();
            *of_process = of_process.saturating_add(run_sample.usage.owner_share_ms());
        }
        let outcomes = &mut self.outcomes;
        self.ended_for.retain_entries(|_, (rule, processes)| {
            processes.retain(|process| held.contains_key(process));
            let of_its = processes.iter().filter_map(|it| held.get(it));
            let freed = of_its.fold(0, |sum: u64, ms| sum.saturating_add(*ms));
            let outcome = outcome_mut(outcomes, rule);
            outcome.freed_ms = outcome.freed_ms.saturating_add(freed);
            !processes.is_empty()
        });
    }

    fn count_record(&mut self, record: &GuardRecord) {
        let is_first = self.memory.is_first_warning(record);
        let outcome = outcome_mut(&mut self.outcomes, &record.rule);
        match &record.step {
            GuardStep::Violated => outcome.violated += 1,
            GuardStep::Warned { .. } if is_first => {
                outcome.warned += 1;
                outcome.services += u64::from(record.evidence.is_service_only_warned);
            }
            GuardStep::Ended(Victim {
                leave_to: Some(_), ..
            }) => outcome.left += 1,
            GuardStep::Ended(victim) => {
                let ends = self.memory.simulated_ends().into_iter();
                let mut ends = ends.filter(|end| {
                    end.violation.rule == record.rule
                        && end.violation.subject == ViolationSubject::Job(victim.job.clone())
                });
                let processes = ends.next().map(|end| end.processes).unwrap_or_default();
                // A job ends once, even if it violates the rule again, or another rule too.
                let job = (PersonKey::from(&victim.job.owner), victim.job.id.clone());
                let before = self.ended_for.entry(job);
                let (_, before) = before.or_insert_with(|| (record.rule.clone(), BTreeSet::new()));
                let is_known = !before.is_empty();
                before.extend(processes);
                if is_known {
                    return;
                }
                outcome.ended += 1;
                // A job that may have worked needs a check too.
                outcome.ended_busy += u64::from(victim.is_busy != Some(false));
            }
            GuardStep::Warned { .. }
            | GuardStep::Exempt(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Outcome(_)
            | GuardStep::Tripped { .. } => {}
        }
    }

    /// Returns the result.
    #[must_use]
    pub fn finish(mut self) -> ReplayResult {
        for record in &mut self.records {
            self.names.name_record(record);
        }
        let open = self.memory.violations().into_iter();
        let open = open.filter(|it| it.not_broken_since.is_none());
        let open = open.map(|mut open| {
            self.names.name_violation(&mut open);
            open
        });
        let open: Vec<OpenViolation> = open.collect();
        let mut outcomes: Vec<RuleOutcome> = self.outcomes.into_values().collect();
        outcomes.sort_indirect_by_key(|it| Reverse((it.freed_ms, it.ended, it.warned)));
        let mut not_evaluated: Vec<UnevaluatedTime> = self
            .not_evaluated
            .into_iter()
            .filter_map(|((rule, why), unknown)| {
                Some(UnevaluatedTime {
                    rule: Some(rule),
                    why,
                    subject: unknown.first?,
                    subjects: unknown.subjects.len() as u64,
                    for_ms: unknown.for_ms,
                })
            })
            .collect();
        not_evaluated.sort_indirect_by_key(|it| Reverse(it.for_ms));
        let mut of_devices = self.silences.into_not_evaluated(&self.losses);
        of_devices.append(&mut not_evaluated);
        let mut not_evaluated = of_devices;
        not_evaluated.truncate(MAX_NOT_JUDGED);
        ReplayResult {
            evaluated: self.evaluated,
            people: self.people.len(),
            runs: self.runs.len(),
            outcomes,
            records: self.records,
            more_records: self.more_records,
            open,
            not_evaluated,
        }
    }
}

fn outcome_mut<'a>(
    outcomes: &'a mut BTreeMap<RuleName, RuleOutcome>,
    rule: &RuleName,
) -> &'a mut RuleOutcome {
    outcomes.entry(rule.clone()).or_insert_with(|| RuleOutcome {
        rule: rule.clone(),
        violated: 0,
        warned: 0,
        ended: 0,
        ended_busy: 0,
        left: 0,
        services: 0,
        freed_ms: 0,
    })
}
