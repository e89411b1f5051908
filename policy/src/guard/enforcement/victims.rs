//! Selects the job to end for a violation: one whole job, of the lowest priority. Among
//! several people who share the excess, the one with the newest claim is chosen. Within the
//! newest claims of that person a job that suffices alone is chosen, otherwise the one that
//! frees most; among these one that has done nothing, then the newest.
//!
//! Never selected are a protected job, a job of which a part is protected or belongs to
//! another person, and a job that was claimed before exempt jobs that hold the whole
//! excess. While an ended job is still going, no other is selected.
//!
//! Memory of processes that survived their signals counts as freed: other jobs are ended
//! only for the remaining excess, and the survivors are signalled again if there are no
//! others.

mod candidates;
mod exempt;
mod report;

use super::concurrency::has_slot;
use super::ended_jobs::{ContainerUser, EndProgress, EndedJob, JobPart, PidStart, SimulatedEnd};
use crate::guard::evaluate::{EvaluatedJob, EvaluationContext, Excess, ViolationDetails};
use crate::guard::person_key::PersonKey;
use crate::guard::snoozes::SnoozeGrant;
use crate::guard::state::{GuardState, JobKey, JobState};
use crate::guard::violation_state::DueOwners;
use candidates::{
    ExemptUsage, VictimCandidate, best_candidate, claim_order, freed_amount, is_freed_amount_known,
    is_idle, is_newest, job_priority, start_order,
};
use exempt::{exemption, format_reasons, is_owner_due, is_owner_warned, milder_policy_exemption};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{GuardMode, RuleKind, RuleName, Victim};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use report::describe_victim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) enum VictimChoice {
    Job(ChosenVictim),
    /// A job is going already, or has gone.
    NotYet,
    /// The owner of the selected job has time left.
    NotDue,
    /// No job may be ended, with the reasons.
    Nobody(ExemptReasons),
}

/// A job to be ended, or the part of one user in a container that several users share.
pub(crate) struct ChosenVictim {
    pub(crate) job: usize,
    pub(crate) runs: Vec<usize>,
    pub(crate) part: Option<ContainerUser>,
    pub(crate) victim: Victim,
    /// Whether these processes survived earlier signals.
    pub(crate) is_repeated: bool,
}

/// Why no job may be ended. It becomes text only when it is reported.
pub(crate) struct ExemptReasons(Vec<ExemptReason>);

enum ExemptReason {
    /// The owner of a process is unknown.
    Unowned,
    /// The job was ended and is still present.
    SurvivedSignals(usize),
    /// The job was claimed before others that may not be ended.
    CameBefore(usize),
    /// The job is exempt, for this reason.
    Exempt(usize, &'static str),
}

impl ExemptReasons {
    /// The reasons as text.
    pub(crate) fn describe(&self, context: &EvaluationContext<'_>, kind: RuleKind) -> String {
        let shown = |job: &usize| context.jobs[*job].shown();
        let words = self.0.iter().map(|reason| match reason {
            ExemptReason::Unowned => "the owner of a process is not known".to_owned(),
            ExemptReason::SurvivedSignals(job) => {
                format!("{} was ended and is still running", shown(job))
            }
            ExemptReason::CameBefore(job) => {
                format!(
                    "{}: later jobs that may not be ended hold the excess",
                    shown(job)
                )
            }
            ExemptReason::Exempt(job, why) => format!("{}: {why}", shown(job)),
        });
        format_reasons(words.into_set(), kind)
    }
}

/// Jobs that were ended, in this sample or before, and are still present.
pub(crate) struct EndedJobs {
    jobs: BTreeMap<JobKey, EndedJob>,
    /// The devices of the jobs that are ended in this sample.
    devices: BTreeSet<DeviceId>,
    /// Devices on which a job was ended a short while ago, and when.
    cooling: BTreeMap<DeviceId, Timestamp>,
    at: Timestamp,
}

impl EndedJobs {
    pub(crate) fn take_from(state: &mut GuardState, context: &EvaluationContext<'_>) -> Self {
        let at = context.sample.until;
        let cooldown = context.compiled_rules.rules().enforcement.cooldown;
        let mut cooling = std::mem::take(&mut state.cooling);
        for since in cooling.values_mut() {
            // A clock that was set back a little does not end the cooldown.
            *since = at.min(*since);
        }
        cooling.retain_entries(|_, since| at.since(*since) < cooldown);
        Self {
            jobs: std::mem::take(&mut state.ended),
            devices: BTreeSet::new(),
            cooling,
            at,
        }
    }

    pub(crate) fn store_in(self, state: &mut GuardState) {
        state.ended = self.jobs;
        state.cooling = self.cooling;
        state.clear_utilization(|device| self.devices.contains(device));
    }

    /// Records that a job is ended.
    pub(crate) fn add(
        &mut self,
        context: &EvaluationContext<'_>,
        chosen: &ChosenVictim,
        rule: &RuleName,
    ) {
        let job = &context.jobs[chosen.job];
        let used = chosen.runs.iter().map(|run| &context.runs[*run].key.device);
        let used: BTreeSet<DeviceId> = used.cloned().into_set();
        self.cooling
            .extend(used.iter().map(|device| (device.clone(), self.at)));
        self.devices.extend(used.iter().cloned());
        let mut before = self.jobs.remove(job.key.as_ref());
        let survivors = before.as_mut().map(|it| std::mem::take(&mut it.survivors));
        let before = before.filter(|it| it.user == chosen.part);
        let without_signals = before.as_ref().filter(|it| !it.progress.had_signals());
        let ended = EndedJob {
            at: self.at,
            rule: Some(rule.clone()),
            progress: EndProgress::Chosen,
            tries: without_signals.map_or(0, EndedJob::tries_after),
            person: Some(PersonKey::from(&chosen.victim.job.owner)),
            user: chosen.part,
            processes: chosen
                .runs
                .iter()
                .map(|run| pid_start(context, *run))
                .into_set(),
            joined: before
                .iter()
                .flat_map(EndedJob::remaining)
                .copied()
                .into_set(),
            survivors: survivors.unwrap_or_default(),
            devices: used,
        };
        self.jobs.insert(JobKey::clone(&job.key), ended);
    }

    /// Whether a job of this person can be ended beside those that are being ended.
    pub(crate) fn has_slot(&self, person: &PersonKey) -> bool {
        let under_way = || self.jobs.values().filter(|it| it.is_in_progress(self.at));
        let is_theirs = |it: &&EndedJob| it.person.as_ref() == Some(person);
        has_slot(under_way().filter(is_theirs).count(), under_way().count())
    }

    /// Whether memory of an ended job is still being released on a device.
    pub(crate) fn is_cooling(&self, device: &DeviceId) -> bool {
        self.cooling.contains_key(device)
    }
}

pub(crate) fn pid_start(context: &EvaluationContext<'_>, run: usize) -> PidStart {
    let key = context.runs[run].key;
    (key.pid, key.start_ticks)
}

/// The other inputs of a selection.
pub(crate) struct SelectionContext<'a> {
    pub(crate) due: &'a DueOwners,
    pub(crate) mode: GuardMode,
    /// State of each job.
    pub(crate) jobs: &'a BTreeMap<Arc<JobKey>, JobState>,
    /// A job that the guard leaves to others.
    pub(crate) left_to: Option<&'a JobKey>,
    /// Snoozes that hold, by user.
    pub(crate) snoozes: &'a BTreeMap<u32, SnoozeGrant>,
    /// In a dry run: the jobs that count as ended for this violation.
    pub(crate) simulated: &'a BTreeMap<JobPart, SimulatedEnd>,
}

/// Selects one of the jobs in the evidence of a condition.
pub(crate) fn select_victim(
    context: &EvaluationContext<'_>,
    held: &ViolationDetails,
    ended: &EndedJobs,
    terms: &SelectionContext<'_>,
) -> VictimChoice {
    let SelectionContext {
        due,
        mode,
        jobs: known,
        left_to,
        snoozes,
        simulated,
    } = *terms;
    let is_there = |run: &usize| context.runs[*run].sample.is_present;
    let runs: Vec<usize> = held.runs.iter().copied().filter(is_there).collect();
    if runs.is_empty() && !held.runs.is_empty() {
        return VictimChoice::NotYet;
    }
    let mut jobs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut exempt = Vec::new();
    // An unknown amount may be enough.
    let max_freed = |runs: &[usize]| match is_freed_amount_known(context, runs, held.excess) {
        true => freed_amount(context, runs, held.excess),
        false => u64::MAX,
    };
    // No job is ended for what these hold, if it was claimed before them.
    let mut kept: Vec<ExemptUsage> = Vec::new();
    for run in runs {
        match context.runs[run].job {
            Some(job) => jobs.entry(job).or_default().push(run),
            None => {
                exempt.push(ExemptReason::Unowned);
                kept.push(ExemptUsage {
                    person: None,
                    priority: 0,
                    claimed: claim_order(context, None, &[run], held.excess),
                    holds: max_freed(&[run]),
                });
            }
        }
    }
    for position in jobs.keys() {
        let job = &context.jobs[*position];
        if left_to == Some(job.key.as_ref()) {
            return VictimChoice::NotYet;
        }
        let was_ended = ended.jobs.get(job.key.as_ref());
        if was_ended.is_some_and(|it| it.is_ending(ended.at)) {
            return VictimChoice::NotYet;
        }
    }
    let mut fresh = Vec::new();
    let mut repeated = Vec::new();
    // What would be freed by the jobs that a dry run counts as ended, and by the processes
    // that survived their signals.
    let (mut would_be_free, mut survive) = (None, None);
    let add = |sum: &mut Option<u64>, frees: u64| {
        *sum = Some(sum.unwrap_or(0).saturating_add(frees));
    };
    for (position, runs) in &jobs {
        let job = &context.jobs[*position];
        let was_ended = ended.jobs.get(job.key.as_ref());
        let (survivors, others): (Vec<usize>, Vec<usize>) = runs.iter().partition(|run| {
            was_ended.is_some_and(|it| it.was_signalled(&pid_start(context, **run)))
        });
        if !survivors.is_empty() {
            exempt.push(ExemptReason::SurvivedSignals(*position));
            add(&mut survive, max_freed(&survivors));
        }
        let is_due = |run: &usize| {
            was_ended.is_some_and(|it| it.is_retry_due(&pid_start(context, *run), ended.at))
        };
        let due_again: Vec<usize> = survivors.into_iter().filter(is_due).collect();
        if others.is_empty() && due_again.is_empty() {
            continue;
        }
        let state = known.get(job.key.as_ref());
        let keeps = |runs: &[usize]| ExemptUsage {
            person: Some(job.person),
            priority: job_priority(context, job),
            claimed: claim_order(context, state, runs, held.excess),
            holds: max_freed(runs),
        };
        let why = exemption(context, job).or_else(|| milder_policy_exemption(context, job, mode));
        let unwarned =
            (!is_owner_warned(context, job, due)).then_some("its owner cannot be warned");
        if let Some(why) = why.or(unwarned) {
            exempt.push(ExemptReason::Exempt(*position, why));
            kept.push(keeps(&others));
            continue;
        }
        let candidate = |part, runs: &[usize], is_repeated| VictimCandidate {
            job: *position,
            person: job.person,
            part,
            is_repeated,
            priority: job_priority(context, job),
            claimed: claim_order(context, state, runs, held.excess),
            frees: freed_amount(context, runs, held.excess),
            is_idle: is_idle(context, job),
            start: start_order(context, runs),
        };
        for (part, runs) in runs_by_user(context, job, &others) {
            let part_of_job = (JobKey::clone(&job.key), part);
            if simulated.contains_key(&part_of_job) {
                add(&mut would_be_free, max_freed(&runs));
                continue;
            }
            match candidate(part, &runs, false) {
                candidate if candidate.frees > 0 => fresh.push(candidate),
                _ => {
                    exempt.push(ExemptReason::Exempt(*position, "its usage is not known"));
                    kept.push(keeps(&runs));
                }
            }
        }
        let again = runs_by_user(context, job, &due_again).into_iter();
        let again = again.map(|(part, runs)| candidate(part, &runs, true));
        repeated.extend(again.filter(|candidate| candidate.frees > 0));
    }
    let excess = [would_be_free, survive]
        .into_iter()
        .flatten()
        .try_fold(held.excess, Excess::reduced_by);
    if let Some(excess) = excess {
        let came_before = fresh.extract_if(.., |it| !is_newest(it, &kept, excess));
        exempt.extend(came_before.map(|it| ExemptReason::CameBefore(it.job)));
    }
    let of_fresh = excess.and_then(|excess| best_candidate(&fresh, excess));
    let chosen = of_fresh.or_else(|| best_candidate(&repeated, held.excess));
    let has_more_time = |job: &EvaluatedJob| {
        let uid = context.people[job.person].uid;
        uid.is_some_and(|uid| snoozes.contains_key(&uid))
    };
    match chosen {
        // Time left makes no other job the one to end.
        Some(chosen)
            if has_more_time(&context.jobs[chosen.job])
                || !is_owner_due(context, &context.jobs[chosen.job], due) =>
        {
            VictimChoice::NotDue
        }
        Some(chosen) => {
            let job = &context.jobs[chosen.job];
            let is_of_part = |run: &usize| {
                let part = || context.container_user(*run).map(ContainerUser);
                chosen.part.is_none() || part() == chosen.part
            };
            let was_ended = ended.jobs.get(job.key.as_ref());
            let is_meant = |run: &usize| {
                let process = pid_start(context, *run);
                match chosen.is_repeated {
                    true => was_ended.is_some_and(|it| it.is_retry_due(&process, ended.at)),
                    false => was_ended.is_none_or(|it| !it.was_signalled(&process)),
                }
            };
            let runs = job.runs.iter().copied().filter(is_of_part);
            let runs: Vec<usize> = runs.filter(is_meant).collect();
            VictimChoice::Job(ChosenVictim {
                job: chosen.job,
                victim: describe_victim(context, chosen, &runs),
                runs,
                part: chosen.part,
                is_repeated: chosen.is_repeated,
            })
        }
        None if survive.is_none() && would_be_free.is_some() => VictimChoice::NotYet,
        None => VictimChoice::Nobody(ExemptReasons(exempt)),
    }
}

/// The runs of a job in the evidence, by user if several users share its container.
fn runs_by_user(
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
    runs: &[usize],
) -> BTreeMap<Option<ContainerUser>, Vec<usize>> {
    if !runs.is_empty() && !context.is_shared(job) {
        return [(None, runs.to_vec())].into();
    }
    let mut parts: BTreeMap<Option<ContainerUser>, Vec<usize>> = BTreeMap::new();
    for run in runs {
        let part = context.container_user(*run).map(ContainerUser);
        parts.entry(part).or_default().push(*run);
    }
    parts
}
