//! Selects among the jobs that may be ended for a violation.

use super::super::ended_jobs::ContainerUser;
use crate::guard::evaluate::{EvaluatedJob, EvaluationContext, Excess};
use crate::guard::limits::milliseconds;
use crate::guard::state::JobState;
use crate::guard::state::streak::{Streak, StreakStatus};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// A job that may be ended for a violation, with the values that it is compared by.
pub(super) struct VictimCandidate {
    pub(super) job: usize,
    pub(super) person: usize,
    pub(super) part: Option<ContainerUser>,
    /// Whether its processes survived earlier signals.
    pub(super) is_repeated: bool,
    pub(super) priority: u8,
    pub(super) claimed: ClaimOrder,
    /// In the unit of the excess.
    pub(super) frees: u64,
    /// Whether it is known to have done nothing for the whole utilization window.
    pub(super) is_idle: bool,
    /// A newer job compares greater.
    pub(super) start: StartOrder,
}

/// Usage that goes on because it may not be ended.
pub(super) struct ExemptUsage {
    /// `None` if unknown.
    pub(super) person: Option<usize>,
    pub(super) priority: u8,
    pub(super) claimed: ClaimOrder,
    /// Upper bound, in the unit of the excess.
    pub(super) holds: u64,
}

/// The time of a claim, and its first process; a newer claim compares greater.
pub(super) type ClaimOrder = (Timestamp, StartOrder);

/// When a process began to hold a device, with its start ticks and pid.
type StartOrder = (Timestamp, u64, u32);

fn needed(excess: Excess) -> u64 {
    match excess {
        Excess::Bytes(needed) | Excess::Processes(needed) | Excess::Percent(needed) => needed,
        Excess::All => 1,
    }
}

/// Whether the job causes a part of the excess: what others claimed later and may not be
/// ended does not make up all of it.
pub(super) fn is_newest(candidate: &VictimCandidate, kept: &[ExemptUsage], excess: Excess) -> bool {
    let is_after = |usage: &&ExemptUsage| {
        usage.person != Some(candidate.person)
            && usage.priority <= candidate.priority
            && usage.claimed > candidate.claimed
    };
    let after = kept.iter().filter(is_after);
    saturating_total(after.map(|it| it.holds)) < needed(excess)
}

/// The job to end: of the lowest priority, the newest claims of the person who claimed
/// last; among these the one that suffices, otherwise the one that frees most.
pub(super) fn best_candidate(
    candidates: &[VictimCandidate],
    excess: Excess,
) -> Option<&VictimCandidate> {
    let lowest = candidates.iter().map(|it| it.priority).min()?;
    let of_lowest = || candidates.iter().filter(|it| it.priority == lowest);
    let last = of_lowest().max_by_key(|it| it.claimed)?;
    let of_others = of_lowest().filter(|it| it.person != last.person);
    let before = of_others.map(|it| it.claimed).max();
    let newest = || of_lowest().filter(|it| it.person == last.person && Some(it.claimed) > before);
    let suffices = newest().filter(|it| it.frees >= needed(excess));
    // If several suffice, an idle job goes first: a short pause or unknown activity does
    // not make a job idle.
    let best = suffices.max_by_key(|it| (it.is_idle, it.start));
    best.or_else(|| newest().max_by_key(|it| (it.frees, it.is_idle, it.start)))
}

/// Since when a job claims what these runs hold: no earlier than its newest claim on any of
/// their devices.
pub(super) fn claim_order(
    context: &EvaluationContext<'_>,
    job: Option<&JobState>,
    runs: &[usize],
    excess: Excess,
) -> ClaimOrder {
    let devices = runs.iter().map(|run| &context.runs[*run].key.device);
    let claims = devices.filter_map(|device| job?.claims.get(device));
    let since = claims.map(|claim| match excess {
        Excess::Processes(_) => claim.processes.since,
        Excess::Bytes(_) | Excess::Percent(_) | Excess::All => claim.memory.since,
    });
    let start = start_order(context, runs);
    (since.max().unwrap_or(start.0), start)
}

/// How much the excess shrinks without these runs.
pub(super) fn freed_amount(context: &EvaluationContext<'_>, runs: &[usize], excess: Excess) -> u64 {
    let runs = runs.iter().map(|run| &context.runs[*run]);
    match excess {
        Excess::Bytes(_) => saturating_total(runs.map(|run| run.memory.value)),
        Excess::Percent(_) => saturating_total(runs.map(|run| run.load.value)),
        Excess::Processes(_) => {
            let processes: BTreeSet<_> = runs
                .map(|run| (run.key.pid, run.key.start_ticks))
                .into_set();
            processes.len() as u64
        }
        Excess::All => 1,
    }
}

/// Whether it is known how much the excess shrinks.
pub(super) fn is_freed_amount_known(
    context: &EvaluationContext<'_>,
    runs: &[usize],
    excess: Excess,
) -> bool {
    let mut runs = runs.iter().map(|run| &context.runs[*run]);
    match excess {
        Excess::Bytes(_) => runs.all(|run| run.memory.is_known),
        Excess::Percent(_) => runs.all(|run| run.load.is_known),
        Excess::Processes(_) | Excess::All => true,
    }
}

fn saturating_total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// The highest priority of its processes counts for the whole job.
pub(super) fn job_priority(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> u8 {
    let priorities = job.runs.iter().map(|run| {
        let profile = &context.profiles[context.runs[*run].profile].0;
        context.compiled_rules.priority(profile)
    });
    priorities
        .max()
        .unwrap_or(crate::guard::rules::DEFAULT_PRIORITY)
}

/// Whether a job is known to have done nothing for the whole utilization window.
pub(super) fn is_idle(context: &EvaluationContext<'_>, job: &EvaluatedJob) -> bool {
    let window = milliseconds(
        context
            .compiled_rules
            .rules()
            .enforcement
            .utilization_window,
    );
    let (start, ..) = start_order(context, &job.runs);
    let through = |still: &Streak| still.status(window.max(1), context.sample.until, start);
    let streaks = job.streaks.as_ref();
    streaks.is_some_and(|(still, _)| matches!(through(still), StreakStatus::Since(..)))
}

/// When the first of these runs began.
pub(super) fn start_order(context: &EvaluationContext<'_>, runs: &[usize]) -> StartOrder {
    let start = runs.iter().map(|run| {
        let run = &context.runs[*run];
        (run.sample.first_seen, run.key.start_ticks, run.key.pid)
    });
    start.min().unwrap_or_default()
}
