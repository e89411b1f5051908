//! The evaluation context: the people, jobs and runs of one sample, and what each of them
//! held. Protected processes are left out.

use super::super::enforcement::ended_jobs;
use super::super::limits::{PolicyProfile, ResolvedLimits, resolve_limits};
use super::super::person_key::PersonRef;
use super::super::sample::{DeviceSample, GuardSample, ProcessFacts, RunSample};
use super::super::state::streak::Streak;
use super::super::state::{GuardState, JobKey, JobState};
use super::compiled_rules::CompiledRules;
use super::index::ContextIndex;
use super::policy_devices::PolicyDevices;
use super::policy_match::PolicyMatch;
use crate::usage::Gauge;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{OwnedJob, Person, RunKey};
use gpukill_proto::model::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How many runs [`EvaluationContext::is_service`] has inspected.
    pub(crate) static INSPECTED_RUNS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(crate) struct EvaluationContext<'a> {
    pub(crate) compiled_rules: &'a CompiledRules,
    pub(crate) sample: &'a GuardSample,
    pub(crate) policy_devices: Arc<PolicyDevices>,
    /// In the order of the sample.
    pub(crate) runs: Vec<EvaluatedRun<'a>>,
    pub(crate) people: Vec<&'a Person>,
    pub(crate) jobs: Vec<EvaluatedJob>,
    pub(crate) devices: Vec<(&'a DeviceId, &'a DeviceSample)>,
    pub(crate) profiles: Vec<(PolicyProfile, ResolvedLimits)>,
    /// The runs of one person on one device to which the same policies apply.
    pub(crate) cells: Vec<UsageCell>,
    /// Positions by name.
    pub(crate) index: ContextIndex<'a>,
}

/// A process on a device. All numbers are positions in [`EvaluationContext`].
pub(crate) struct EvaluatedRun<'a> {
    pub(crate) key: &'a Arc<RunKey>,
    pub(crate) sample: &'a RunSample,
    pub(crate) policy_match: Arc<PolicyMatch>,
    pub(crate) person: Option<usize>,
    /// `None` if the owner is unknown.
    pub(crate) job: Option<usize>,
    pub(crate) device: Option<usize>,
    pub(crate) profile: usize,
    /// Whether its device reported its processes. If it did not in any part of the sample,
    /// the run is neither present nor gone.
    pub(crate) is_reported: bool,
    /// Bytes.
    pub(crate) memory: Amount,
    /// Percent, over the utilization window; unknown while no reading shows the current
    /// utilization.
    pub(crate) load: Amount,
    /// The same, with or without a current reading.
    pub(crate) past_load: Amount,
}

/// A lower bound; the exact amount if `is_known`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) value: u64,
    pub(crate) is_known: bool,
}

impl Amount {
    pub(crate) const UNKNOWN: Self = Self {
        value: 0,
        is_known: false,
    };

    /// The mean over all of `seen_ms`, of which `held_ms` should be known.
    pub(crate) fn from_gauge(gauge: &Gauge, seen_ms: u64, held_ms: u64) -> Self {
        let mean = gauge.total.checked_div(u128::from(seen_ms)).unwrap_or(0);
        Self {
            value: u64::try_from(mean).unwrap_or(u64::MAX),
            is_known: is_known(gauge, held_ms),
        }
    }
}

/// Whether a value was known for the whole time that the device was held.
pub(crate) fn is_known(gauge: &Gauge, held_ms: u64) -> bool {
    held_ms > 0 && gauge.known_ms >= held_ms && !gauge.is_failed
}

/// The processes that are ended together.
pub(crate) struct EvaluatedJob {
    pub(crate) key: Arc<JobKey>,
    pub(crate) person: usize,
    pub(crate) runs: Vec<usize>,
    /// Why the job is exempt from being ended.
    pub(crate) exemption: Option<&'static str>,
    /// The policies of its first process.
    first: Arc<PolicyMatch>,
    /// How `list` showed it at first, if that differs.
    renamed: Option<String>,
    /// Since when the job has done nothing, and since when it has also had no client.
    pub(crate) streaks: Option<(Streak, Streak)>,
}

impl EvaluatedJob {
    /// Takes the first name and the streaks from the state.
    pub(crate) fn restore(&mut self, known: &JobState) {
        let is_renamed = known.shown != self.first.job.1;
        self.renamed = is_renamed.then(|| known.shown.clone());
        self.streaks = Some((known.idle_streak, known.unconnected_streak));
    }

    /// How `list` shows it.
    pub(crate) fn shown(&self) -> &str {
        self.renamed.as_ref().unwrap_or(&self.first.job.1)
    }
}

impl EvaluationContext<'_> {
    /// The user that a process runs as, if it is in a container that root created.
    pub(crate) fn container_user(&self, run: usize) -> Option<Option<u32>> {
        let facts = &self.runs[run].sample.facts;
        // The creator of a user namespace is responsible for its processes, whatever they
        // run as.
        let has_own_namespace = facts.in_host_user_namespace == Some(false)
            && facts
                .owner
                .as_ref()
                .is_some_and(|owner| owner.uid.is_some());
        let is_shareable = facts.is_contained == Some(true) && !has_own_namespace;
        is_shareable.then(|| facts.user.as_ref().map(|(_, uid)| *uid))
    }

    /// Whether several users besides root have processes of a job in one container. A
    /// violation by one of them is no reason to end the processes of the others.
    pub(crate) fn is_shared(&self, job: &EvaluatedJob) -> bool {
        let users = job.runs.iter().filter_map(|run| self.container_user(*run));
        let users: BTreeSet<_> = users.filter(|user| *user != Some(0)).into_set();
        users.len() > 1
    }

    /// Whether these processes are part of a service; `None` if that is unknown.
    pub(crate) fn is_service(&self, runs: &[usize]) -> Option<bool> {
        #[cfg(test)]
        INSPECTED_RUNS.with(|count| count.set(count.get() + runs.len()));
        let role = |run: &usize| self.runs[*run].sample.facts.network.as_ref();
        super::policy_match::any(runs.iter().map(|run| Some(role(run)?.is_service())))
    }

    /// A job as it is reported.
    pub(crate) fn evaluated_job(&self, job: &EvaluatedJob) -> OwnedJob {
        OwnedJob {
            owner: self.people[job.person].clone(),
            id: job.key.id.clone(),
            shown: job.shown().to_owned(),
        }
    }
}

pub(crate) struct UsageCell {
    pub(crate) person: usize,
    pub(crate) profile: usize,
    pub(crate) device: Option<usize>,
    pub(crate) runs: Vec<usize>,
}

/// A process of a sample, and the policies that apply to it.
type SampledRun<'a> = (&'a Arc<RunKey>, &'a RunSample, Arc<PolicyMatch>);

/// Builds the context of a sample, and updates what the state knows of its jobs.
pub(crate) fn build_context<'a>(
    compiled_rules: &'a CompiledRules,
    state: &mut GuardState,
    sample: &'a GuardSample,
) -> EvaluationContext<'a> {
    let policy_devices = state.policy_devices(compiled_rules, sample);
    state.release_moved();
    let runs: Vec<SampledRun<'_>> = sample
        .runs
        .iter()
        .map(|(key, run_sample)| {
            let selected = state.policy_match(compiled_rules, key, &run_sample.facts);
            (key, run_sample, selected)
        })
        .collect();
    state.prune_cache();
    update_ended_jobs(state, &runs);
    let mut owners_by_job: BTreeMap<&str, JobOwners<'_>> = BTreeMap::new();
    for (_, run_sample, selected) in &runs {
        let job_owners = owners_by_job.entry(&selected.job.0).or_default();
        job_owners.add(&run_sample.facts, selected.is_protected);
    }
    let positions: BTreeMap<&DeviceId, usize> = sample.devices.keys().zip(0..).into_map();
    let mut context = EvaluationContext {
        compiled_rules,
        sample,
        policy_devices,
        runs: Vec::with_capacity(runs.len()),
        people: Vec::new(),
        jobs: Vec::new(),
        devices: sample.devices.iter().collect(),
        profiles: Vec::new(),
        cells: Vec::new(),
        index: ContextIndex::default(),
    };
    let mut index = InsertionIndex::default();
    for candidate in &runs {
        let (key, _, selected) = candidate;
        if selected.is_protected {
            continue;
        }
        let device = positions.get(&key.device).copied();
        let exemption = owners_by_job
            .get(selected.job.0.as_str())
            .and_then(JobOwners::exemption);
        context.add(&mut index, candidate, device, exemption);
    }
    context.index.people = index.people;
    context.index.jobs = index.jobs.into_values().collect();
    context
}

const OTHER_OWNER: &str = "one of its processes belongs to another person";

/// The owners of all processes with one job id, including protected processes and those of
/// other people.
#[derive(Default)]
struct JobOwners<'a> {
    /// In a container: the owner of each user's processes. They are ended apart.
    by_container_user: BTreeMap<u32, PersonRef<'a>>,
    /// The owner of all other processes.
    other_owner: Option<PersonRef<'a>>,
    exemption: Option<&'static str>,
}

impl<'a> JobOwners<'a> {
    fn add(&mut self, facts: &'a ProcessFacts, is_protected: bool) {
        let owner = facts.owner.as_ref().map(PersonRef::from);
        if is_protected {
            self.exempt("a process of it is protected");
        }
        let Some(owner) = owner else {
            return self.exempt("the owner of one of its processes is not known");
        };
        let user = facts.user.as_ref().map(|(_, uid)| *uid);
        let user = user.filter(|_| facts.is_contained == Some(true));
        let first = match user {
            Some(uid) => *self.by_container_user.entry(uid).or_insert(owner),
            None => *self.other_owner.get_or_insert(owner),
        };
        if first != owner {
            self.exempt(OTHER_OWNER);
        }
    }

    /// Keeps the same one of several reasons, whatever the order.
    fn exempt(&mut self, why: &'static str) {
        self.exemption = self.exemption.max(Some(why));
    }

    /// Why the job is exempt from being ended.
    fn exemption(&self) -> Option<&'static str> {
        let other_owner = self.other_owner.as_ref();
        let has_other_owner = other_owner.is_some_and(|other_owner| {
            self.by_container_user
                .values()
                .any(|owner| owner != other_owner)
        });
        self.exemption.max(has_other_owner.then_some(OTHER_OWNER))
    }
}

/// Updates which of the ended jobs are still present.
fn update_ended_jobs(state: &mut GuardState, runs: &[SampledRun<'_>]) {
    if state.ended.is_empty() {
        return;
    }
    let process = |key: &RunKey| (key.pid, key.start_ticks);
    let present: BTreeSet<_> = runs.iter().map(|(key, ..)| process(key)).into_set();
    let jobs = runs.iter().filter_map(|(key, run_sample, selected)| {
        let job = selected.job_key.as_ref()?;
        let user = run_sample.facts.user.as_ref().map(|(_, uid)| *uid);
        Some((process(key), job.as_ref(), user))
    });
    let reporting = (&state.device_reporting, state.until.unwrap_or_default());
    ended_jobs::update_ended(&mut state.ended, reporting, &present, jobs);
}

/// Positions of what the context contains already.
#[derive(Default)]
struct InsertionIndex<'e, 'a> {
    people: BTreeMap<PersonRef<'a>, usize>,
    jobs: BTreeMap<&'e JobKey, usize>,
    profiles: BTreeMap<&'e PolicyProfile, usize>,
    cells: BTreeMap<(usize, usize, Option<usize>), usize>,
}

impl<'a> EvaluationContext<'a> {
    fn add<'e>(
        &mut self,
        index: &mut InsertionIndex<'e, 'a>,
        (key, run_sample, selected): &'e SampledRun<'a>,
        device: Option<usize>,
        exemption: Option<&'static str>,
    ) {
        let position = self.runs.len();
        let profile = *index.profiles.entry(&selected.profile).or_insert_with(|| {
            let resolved = resolve_limits(
                self.compiled_rules.rules(),
                &selected.profile,
                self.sample.local_time,
            );
            self.profiles.push((selected.profile.clone(), resolved));
            self.profiles.len() - 1
        });
        let owner = run_sample
            .facts
            .owner
            .as_ref()
            .zip(selected.job_key.as_ref());
        let owner = owner.map(|(owner, job)| {
            let person = *index.people.entry(owner.into()).or_insert_with(|| {
                self.people.push(owner);
                self.people.len() - 1
            });
            let job = *index.jobs.entry(job.as_ref()).or_insert_with(|| {
                self.jobs.push(EvaluatedJob {
                    key: Arc::clone(job),
                    person,
                    runs: Vec::new(),
                    exemption,
                    first: Arc::clone(selected),
                    renamed: None,
                    streaks: None,
                });
                self.jobs.len() - 1
            });
            let cell = index.cells.entry((person, profile, device));
            let cell = *cell.or_insert_with(|| {
                self.index.add(person, device, &selected.profile);
                self.cells.push(UsageCell {
                    person,
                    profile,
                    device,
                    runs: Vec::new(),
                });
                self.cells.len() - 1
            });
            // If the processes of a job now have several job ids, the exemption of each
            // counts.
            self.jobs[job].exemption = self.jobs[job].exemption.max(exemption);
            self.jobs[job].runs.push(position);
            self.cells[cell].runs.push(position);
            (person, job)
        });
        let (observed_ms, held) = (self.sample.observed_ms, run_sample.usage.held_ms);
        self.runs.push(EvaluatedRun {
            key,
            sample: run_sample,
            policy_match: Arc::clone(selected),
            person: owner.map(|(person, _)| person),
            job: owner.map(|(_, job)| job),
            device,
            profile,
            is_reported: held > 0 || observed_ms == 0,
            memory: Amount::from_gauge(&run_sample.usage.memory, observed_ms, held),
            load: Amount::UNKNOWN,
            past_load: Amount::UNKNOWN,
        });
    }
}
