//! The jobs that may be ended for a violation, and which of them is.

use super::super::ended::Part;
use super::super::judge::{Excess, Job, Scene};
use super::super::limits::milliseconds;
use super::super::memory::JobMemory;
use super::super::memory::streak::{Streak, Through};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// A job that may be ended for a violation, with what it is compared by.
pub(super) struct Candidate {
    pub(super) job: usize,
    pub(super) person: usize,
    pub(super) part: Option<Part>,
    /// Its processes survived signals before.
    pub(super) is_repeated: bool,
    pub(super) priority: u8,
    pub(super) claimed: Claimed,
    /// In the unit of what is too much.
    pub(super) frees: u64,
    /// It is known to have done nothing for as long as utilisation is judged by.
    pub(super) is_idle: bool,
    /// The younger the later.
    pub(super) began: Began,
}

/// What goes on that may not be ended.
pub(super) struct Kept {
    /// `None` where that is not known.
    pub(super) person: Option<usize>,
    pub(super) priority: u8,
    pub(super) claimed: Claimed,
    /// At most, in the unit of what is too much.
    pub(super) holds: u64,
}

/// Since when something is claimed, and by which process; the later the newer.
pub(super) type Claimed = (Timestamp, Began);

/// When a process began to hold a device, and which.
type Began = (Timestamp, u64, u32);

fn needed(excess: Excess) -> u64 {
    match excess {
        Excess::Bytes(needed) | Excess::Processes(needed) | Excess::Percent(needed) => needed,
        Excess::All => 1,
    }
}

/// Whether some of what is too much is this one's: what others hold who came after it and may
/// not be ended is not all of it.
pub(super) fn is_newest(candidate: &Candidate, kept: &[Kept], excess: Excess) -> bool {
    let is_after = |it: &&Kept| {
        it.person != Some(candidate.person)
            && it.priority <= candidate.priority
            && it.claimed > candidate.claimed
    };
    let after = kept.iter().filter(is_after);
    total(after.map(|it| it.holds)) < needed(excess)
}

/// The job to end: of the lowest priority, the newest claims of the person who claimed last;
/// of these the one that suffices, else the one that frees most.
pub(super) fn best(candidates: &[Candidate], excess: Excess) -> Option<&Candidate> {
    let lowest = candidates.iter().map(|it| it.priority).min()?;
    let of_lowest = || candidates.iter().filter(|it| it.priority == lowest);
    let last = of_lowest().max_by_key(|it| it.claimed)?;
    let of_others = of_lowest().filter(|it| it.person != last.person);
    let before = of_others.map(|it| it.claimed).max();
    let newest = || of_lowest().filter(|it| it.person == last.person && Some(it.claimed) > before);
    let suffices = newest().filter(|it| it.frees >= needed(excess));
    // Of two that cost as much, the one that nobody misses: a pause of a moment does
    // not make it that one, nor does a doubt.
    let best = suffices.max_by_key(|it| (it.is_idle, it.began));
    best.or_else(|| newest().max_by_key(|it| (it.frees, it.is_idle, it.began)))
}

/// Since when a job claims what these of its processes hold: no earlier than its newest claim
/// of any of their devices.
pub(super) fn claimed(
    scene: &Scene<'_>,
    job: Option<&JobMemory>,
    runs: &[usize],
    excess: Excess,
) -> Claimed {
    let devices = runs.iter().map(|run| &scene.runs[*run].key.device);
    let claims = devices.filter_map(|device| job?.claims.get(device));
    let since = claims.map(|claim| match excess {
        Excess::Processes(_) => claim.processes.since,
        Excess::Bytes(_) | Excess::Percent(_) | Excess::All => claim.memory.since,
    });
    let began = began(scene, runs);
    (since.max().unwrap_or(began.0), began)
}

/// How much less it would be without these.
pub(super) fn frees(scene: &Scene<'_>, runs: &[usize], excess: Excess) -> u64 {
    let runs = runs.iter().map(|run| &scene.runs[*run]);
    match excess {
        Excess::Bytes(_) => total(runs.map(|run| run.memory.value)),
        Excess::Percent(_) => total(runs.map(|run| run.load.value)),
        Excess::Processes(_) => {
            let processes: BTreeSet<_> = runs
                .map(|run| (run.key.pid, run.key.start_ticks))
                .into_set();
            processes.len() as u64
        }
        Excess::All => 1,
    }
}

/// Whether it is known how much less it would be.
pub(super) fn is_known(scene: &Scene<'_>, runs: &[usize], excess: Excess) -> bool {
    let mut runs = runs.iter().map(|run| &scene.runs[*run]);
    match excess {
        Excess::Bytes(_) => runs.all(|run| run.memory.is_known),
        Excess::Percent(_) => runs.all(|run| run.load.is_known),
        Excess::Processes(_) | Excess::All => true,
    }
}

fn total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// The highest of its processes': one that is to be spared spares the others.
pub(super) fn priority(scene: &Scene<'_>, job: &Job) -> u8 {
    let priorities = job.runs.iter().map(|run| {
        let profile = &scene.profiles[scene.runs[*run].profile].0;
        scene.book.priority(profile)
    });
    priorities.max().unwrap_or(super::super::rules::PRIORITY)
}

/// Whether a job is known to have done nothing for as long as utilization is judged by.
pub(super) fn is_idle(scene: &Scene<'_>, job: &Job) -> bool {
    let window = milliseconds(scene.book.rules().enforcement.utilization_window);
    let (began, ..) = began(scene, &job.runs);
    let through = |still: &Streak| still.through(window.max(1), scene.bucket.until, began);
    let streaks = job.streaks.as_ref();
    streaks.is_some_and(|(still, _)| matches!(through(still), Through::Since(..)))
}

/// When the first of these began.
pub(super) fn began(scene: &Scene<'_>, runs: &[usize]) -> Began {
    let began = runs.iter().map(|run| {
        let run = &scene.runs[*run];
        (run.judged.first_seen, run.key.start_ticks, run.key.pid)
    });
    began.min().unwrap_or_default()
}
