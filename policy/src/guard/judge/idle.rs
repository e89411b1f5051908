//! Whether a job holds a device and does nothing: in every bucket of the whole time,
//! with all its processes on all devices. Of a rank that waits another may work. A short
//! time without readings neither counts nor begins that time anew ([`Streak`]).

use super::super::limits::milliseconds;
use super::super::memory::streak::{Streak, Through};
use super::super::memory::{ConductMemory, JobMemory, Memory, keep};
use super::claims;
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, Whom};
use super::scene::{Job, Scene, is_known};
use super::selected::any;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Measured, RuleKind};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Notes of every job whether it did something and what it claims, whatever the rules ask,
/// and tells the scene for how long it did nothing.
pub(crate) fn remember(memory: &mut Memory, scene: &mut Scene<'_>) {
    let is_seen = scene.bucket.seen_ms > 0;
    let until = scene.bucket.until;
    for position in 0..scene.jobs.len() {
        let job = &scene.jobs[position];
        let known = memory.jobs.entry(Arc::clone(&job.key));
        let known = known.or_insert_with(|| {
            let began = began(scene, job).min(until).max(scene.bucket.from);
            JobMemory {
                shown: job.shown().to_owned(),
                still: Streak::from(began),
                alone: Streak::from(began),
                claims: BTreeMap::new(),
            }
        });
        if is_seen {
            let is_busy = is_busy(scene, job);
            let missing = missing_ms(scene, job);
            note(&mut known.still, is_busy, missing, until);
            let is_called = match (is_busy, is_connected(scene, job)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                (None, _) | (_, None) => None,
            };
            let missing = missing.max(missing_clients_ms(scene, job));
            note(&mut known.alone, is_called, missing, until);
            claims::remember(known, scene, job);
        }
        scene.jobs[position].is_remembered(known);
    }
    let there = scene.jobs.iter().map(|job| &job.key);
    keep(&mut memory.jobs, scene.jobs.len(), there);
}

/// Notes whether it does something; of so many milliseconds nothing is known.
fn note(streak: &mut Streak, does: Option<bool>, missing_ms: u64, until: Timestamp) {
    match does {
        Some(true) => streak.breaks(until),
        Some(false) => streak.goes_on(),
        None => streak.is_unknown(missing_ms, until),
    }
}

/// For how long it is not known whether one of its processes worked.
fn missing_ms(scene: &Scene<'_>, job: &Job) -> u64 {
    let missing = job.runs.iter().map(|run| {
        let usage = &scene.runs[*run].judged.usage;
        let known = usage.utilization.known_ms.min(usage.held_ms);
        match usage.held_ms - known {
            // Its device did not tell who uses it.
            0 if !is_known(&usage.utilization, usage.held_ms) => scene.bucket.seen_ms,
            missing => missing,
        }
    });
    missing.max().unwrap_or(scene.bucket.seen_ms)
}

/// For how long it is not known whether anybody was connected to it.
fn missing_clients_ms(scene: &Scene<'_>, job: &Job) -> u64 {
    let gauges = job.runs.iter().map(|run| &scene.runs[*run].judged.usage);
    let failed = gauges.filter(|usage| usage.connections.is_failed);
    let missing = failed.map(|usage| {
        let known = usage.connections.known_ms;
        scene.bucket.seen_ms.saturating_sub(known).max(1)
    });
    missing.max().unwrap_or(0)
}

/// Since when a job is there.
fn began(scene: &Scene<'_>, job: &Job) -> Timestamp {
    let first_seen = job
        .runs
        .iter()
        .map(|run| scene.runs[*run].judged.first_seen);
    first_seen.min().unwrap_or(scene.bucket.until)
}

/// Whether any of its processes worked at any poll; `None` where none is known to
/// have, and of one that is not known.
pub(crate) fn is_busy(scene: &Scene<'_>, job: &Job) -> Option<bool> {
    let below = u64::from(scene.book.rules().enforcement.idle_below.0);
    let mut answer = Some(false);
    for run in &job.runs {
        let usage = &scene.runs[*run].judged.usage;
        if usage.utilization.most.is_some_and(|most| most >= below) {
            return Some(true);
        }
        if !is_known(&usage.utilization, usage.held_ms) {
            answer = None;
        }
    }
    answer
}

/// Whether anybody was connected to any of its processes. One that has no such number
/// listens on nothing.
fn is_connected(scene: &Scene<'_>, job: &Job) -> Option<bool> {
    let mut answer = Some(false);
    for run in &job.runs {
        let connections = &scene.runs[*run].judged.usage.connections;
        if connections.most.is_some_and(|most| most > 0) {
            return Some(true);
        }
        if connections.is_failed {
            answer = None;
        }
    }
    answer
}

/// For how long, with how much, and whether connections count for nothing.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) limit: Duration,
    pub(crate) min_memory: Bytes,
    pub(crate) with_connections: bool,
    pub(crate) cpu_below: Option<Percent>,
}

pub(crate) fn judge(
    scene: &Scene<'_>,
    memory: &mut ConductMemory,
    concern: &Concern,
    terms: Terms,
    findings: &mut Findings,
) {
    let limit = milliseconds(terms.limit).max(1);
    let until = scene.bucket.until;
    for (position, runs) in concern.jobs() {
        let job = &scene.jobs[position];
        let Some((still, alone)) = &job.streaks else {
            continue;
        };
        let streak = if terms.with_connections { still } else { alone };
        let holds_enough = holds(scene, runs, terms.min_memory);
        let through = streak.through(limit, until, began(scene, job));
        let through = match terms.cpu_below {
            Some(below) => {
                let cpu = note_cpu(memory, scene, job, below);
                through.and(cpu.through(limit, until, began(scene, job)))
            }
            None => through,
        };
        let whom = Whom::Job(position);
        let kind = RuleKind::Idle;
        match (through, holds_enough) {
            (Through::Not, _) | (_, Some(false)) => {}
            (Through::Unknown, _) => {
                let why = "whether it worked all the time is not known";
                findings.unknown(concern.policy, kind, whom, why);
            }
            (Through::Since(..), None) => {
                let why = "how much memory it holds is not known";
                findings.unknown(concern.policy, kind, whom, why);
            }
            (Through::Since(..), Some(true))
                if scene.is_service(&job.runs).is_none()
                    && !scene.book.ends_services(concern.policy) =>
            {
                findings.unknown(concern.policy, kind, whom, UNKNOWN_ROLE);
            }
            (Through::Since(since, value), Some(true)) => {
                let held = Held {
                    measured: Some(Measured { value, limit }),
                    since: Some(since),
                    runs: job.runs.clone(),
                    unknown: 0,
                    excess: Excess::All,
                    threat: None,
                };
                findings.holds_unless((concern.policy, concern.doubt), kind, whom, held);
            }
        }
    }
    let there: BTreeSet<_> = concern.jobs().map(|(at, _)| &scene.jobs[at].key).into_set();
    memory.cpu.retain(|job, _| there.contains(job));
}

/// Notes whether a job took as much of a core as this. A process of it without a GPU is
/// not read, and counts for nothing.
fn note_cpu(memory: &mut ConductMemory, scene: &Scene<'_>, job: &Job, below: Percent) -> Streak {
    let until = scene.bucket.until;
    let streak = memory.cpu.entry(Arc::clone(&job.key));
    let streak =
        streak.or_insert_with(|| Streak::from(began(scene, job).min(until).max(scene.bucket.from)));
    let reaches = |run: &usize| scene.runs[*run].judged.usage.cpu.reaches(below);
    let reached = any(job.runs.iter().map(reaches));
    note(streak, reached, scene.bucket.seen_ms, until);
    *streak
}

/// Why nothing comes of it that a job is idle or wastes a GPU.
pub(super) const UNKNOWN_ROLE: &str = "whether it is a service is not known";

/// Whether any of these processes holds so much.
fn holds(scene: &Scene<'_>, runs: &[usize], least: Bytes) -> Option<bool> {
    let amounts = || runs.iter().map(|run| scene.runs[*run].memory);
    if amounts().any(|amount| amount.value >= least.0) {
        return Some(true);
    }
    amounts().all(|amount| amount.is_known).then_some(false)
}
