//! Evaluates whether a job holds a device and does nothing: in every sample of the whole
//! time, with all its processes on all devices. While one rank waits, another may work. A
//! short time without readings neither counts nor restarts that time ([`Streak`]).

use super::super::limits::milliseconds;
use super::super::rules::IdleParams;
use super::super::state::streak::{Streak, StreakStatus};
use super::super::state::{BehaviourState, GuardState, JobState, retain_keys};
use super::behaviour::BehaviourCheck;
use super::claims;
use super::context::{EvaluatedJob, EvaluationContext, is_known};
use super::findings::{Excess, Findings, SubjectIndex, ViolationDetails};
use super::policy_match::any;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{Measurement, RuleKind};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Updates the activity and the claims of every job, whatever the rules ask for, and gives
/// the context the time for which each job has done nothing.
pub(crate) fn update_jobs(state: &mut GuardState, context: &mut EvaluationContext<'_>) {
    let is_seen = context.sample.observed_ms > 0;
    let until = context.sample.until;
    for position in 0..context.jobs.len() {
        let job = &context.jobs[position];
        let known = state.jobs.entry(Arc::clone(&job.key));
        let known = known.or_insert_with(|| {
            let start = present_since(context, job)
                .min(until)
                .max(context.sample.from);
            JobState {
                shown: job.shown().to_owned(),
                idle_streak: Streak::starting_at(start),
                unconnected_streak: Streak::starting_at(start),
                claims: BTreeMap::new(),
            }
        });
        if is_seen {
            let is_busy = is_busy(context, job);
            let missing = unknown_ms(context, job);
            update_streak(&mut known.idle_streak, is_busy, missing, until);
            let is_called = match (is_busy, is_connected(context, job)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                (None, _) | (_, None) => None,
            };
            let missing = missing.max(unknown_clients_ms(context, job));
            update_streak(&mut known.unconnected_streak, is_called, missing, until);
            claims::update_claims(known, context, job);
        }
        context.jobs[position].restore(known);
    }
    let present = context.jobs.iter().map(|job| &job.key);
    retain_keys(&mut state.jobs, context.jobs.len(), present);
}

/// Records whether the job did something; `missing_ms` milliseconds are unknown.
fn update_streak(streak: &mut Streak, does: Option<bool>, missing_ms: u64, until: Timestamp) {
    match does {
        Some(true) => streak.record_broken(until),
        Some(false) => streak.record_unbroken(),
        None => streak.record_unknown(missing_ms, until),
    }
}

/// For how long it is unknown whether a process of the job worked.
fn unknown_ms(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> u64 {
    let missing = job.runs.iter().map(|run| {
        let usage = &context.runs[*run].sample.usage;
        let known = usage.utilization.known_ms.min(usage.held_ms);
        match usage.held_ms - known {
            // The device did not report its processes.
            0 if !is_known(&usage.utilization, usage.held_ms) => context.sample.observed_ms,
            missing => missing,
        }
    });
    missing.max().unwrap_or(context.sample.observed_ms)
}

/// For how long it is unknown whether a client was connected to the job.
fn unknown_clients_ms(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> u64 {
    let gauges = job.runs.iter().map(|run| &context.runs[*run].sample.usage);
    let failed = gauges.filter(|usage| usage.connections.is_failed);
    let missing = failed.map(|usage| {
        let known = usage.connections.known_ms;
        context.sample.observed_ms.saturating_sub(known).max(1)
    });
    missing.max().unwrap_or(0)
}

/// Since when a job has been present.
fn present_since(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> Timestamp {
    let first_seen = job
        .runs
        .iter()
        .map(|run| context.runs[*run].sample.first_seen);
    first_seen.min().unwrap_or(context.sample.until)
}

/// Whether a process of the job worked at any poll; `None` if none is known to have worked
/// and one is unknown.
pub(crate) fn is_busy(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> Option<bool> {
    let below = u64::from(context.compiled_rules.rules().enforcement.idle_below.0);
    let mut answer = Some(false);
    for run in &job.runs {
        let usage = &context.runs[*run].sample.usage;
        if usage.utilization.max.is_some_and(|max| max >= below) {
            return Some(true);
        }
        if !is_known(&usage.utilization, usage.held_ms) {
            answer = None;
        }
    }
    answer
}

/// Whether a client was connected to a process of the job. A process without a connection
/// count listens on nothing.
fn is_connected(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> Option<bool> {
    let mut answer = Some(false);
    for run in &job.runs {
        let connections = &context.runs[*run].sample.usage.connections;
        if connections.max.is_some_and(|max| max > 0) {
            return Some(true);
        }
        if connections.is_failed {
            answer = None;
        }
    }
    answer
}

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    state: &mut BehaviourState,
    check: &BehaviourCheck,
    terms: IdleParams,
    findings: &mut Findings,
) {
    let limit = milliseconds(terms.limit).max(1);
    let until = context.sample.until;
    for (position, runs) in check.jobs() {
        let job = &context.jobs[position];
        let Some((still, alone)) = &job.streaks else {
            continue;
        };
        let streak = if terms.with_connections { still } else { alone };
        let holds_enough = holds_memory(context, runs, terms.min_memory);
        let through = streak.status(limit, until, present_since(context, job));
        let through = match terms.cpu_below {
            Some(below) => {
                let cpu = update_cpu_streak(state, context, job, below);
                through.combine(cpu.status(limit, until, present_since(context, job)))
            }
            None => through,
        };
        let subject = SubjectIndex::Job(position);
        let kind = RuleKind::Idle;
        match (through, holds_enough) {
            (StreakStatus::Broken, _) | (_, Some(false)) => {}
            (StreakStatus::Unknown, _) => {
                let why = "whether it worked all the time is not known";
                findings.add_unknown(check.policy, kind, subject, why);
            }
            (StreakStatus::Since(..), None) => {
                let why = "how much memory it holds is not known";
                findings.add_unknown(check.policy, kind, subject, why);
            }
            (StreakStatus::Since(..), Some(true))
                if context.is_service(&job.runs).is_none()
                    && !context.compiled_rules.ends_services(check.policy) =>
            {
                findings.add_unknown(check.policy, kind, subject, SERVICE_UNKNOWN);
            }
            (StreakStatus::Since(since, value), Some(true)) => {
                let held = ViolationDetails {
                    measured: Some(Measurement { value, limit }),
                    since: Some(since),
                    runs: job.runs.clone(),
                    unknown: 0,
                    excess: Excess::All,
                    threat: None,
                };
                findings.add_violated_unless((check.policy, check.doubt), kind, subject, held);
            }
        }
    }
    // Few rules measure CPU time.
    if !state.cpu.is_empty() {
        let present: BTreeSet<_> = check.jobs().map(|(at, _)| &context.jobs[at].key).into_set();
        state.cpu.retain_entries(|job, _| present.contains(job));
    }
}

/// Records whether a job used at least `below` of a core. Its processes without a GPU are
/// not read, and do not count.
fn update_cpu_streak(
    state: &mut BehaviourState,
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
    below: Percent,
) -> Streak {
    let until = context.sample.until;
    let streak = state.cpu.entry(Arc::clone(&job.key));
    let streak = streak.or_insert_with(|| {
        Streak::starting_at(
            present_since(context, job)
                .min(until)
                .max(context.sample.from),
        )
    });
    let reaches = |run: &usize| context.runs[*run].sample.usage.cpu.reaches(below);
    let reached = any(job.runs.iter().map(reaches));
    update_streak(streak, reached, context.sample.observed_ms, until);
    *streak
}

/// Why an idle or wasteful job has no consequences.
pub(super) const SERVICE_UNKNOWN: &str = "whether it is a service is not known";

/// Whether one of these processes holds at least this much memory.
fn holds_memory(
    context: &EvaluationContext<'_>,
    runs: &[usize],
    min_memory: Bytes,
) -> Option<bool> {
    let amounts = || runs.iter().map(|run| context.runs[*run].memory);
    if amounts().any(|amount| amount.value >= min_memory.0) {
        return Some(true);
    }
    amounts().all(|amount| amount.is_known).then_some(false)
}
