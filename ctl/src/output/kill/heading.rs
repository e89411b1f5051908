//! The heading of a plan, in one line: the job and its owner, the number of processes, the
//! GPUs, the memory.

use super::super::holders::gpu_ranges;
use super::super::owner_cells::of_owners;
use super::super::style::Symbols;
use super::super::table::Cell;
use super::super::text::{Tone, escaped};
use super::super::value::{gib, size};
use super::{command_text, is_ended, owner_cell, owner_text};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillPlan, KillScope, KillTarget};
use gpukill_proto::model::Job;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// `alice's job slurm 1234.0: 9 processes on GPUs 0-3, 252.4 GiB`
pub(super) fn heading(plan: &KillPlan, symbols: Symbols) -> String {
    let targets: Vec<&KillTarget> = plan
        .targets
        .iter()
        .filter(|target| is_ended(target))
        .collect();
    let number = targets.len();
    let gpus_and_memory = format!("{}{}", gpu_phrase(&targets), memory_phrase(&targets));
    let others = match plan.targets.len() - number {
        0 => String::new(),
        1 => "; 1 other is left alone".to_owned(),
        several => format!("; {several} others are left alone"),
    };
    let known = targets.iter().filter(|target| is_known(target));
    let owners: BTreeSet<String> = known.map(|it| owner_cell(it, plan, symbols)).into_set();
    let owners: Vec<String> = owners.into_iter().collect();
    let description = match (targets.as_slice(), common_job(plan), owners.as_slice()) {
        ([], _, _) => return "nobody would be ended".to_owned(),
        ([one], _, _) => {
            let (pid, owner) = (one.key.pid, owner_text(one, symbols));
            let what = command_text(&one.command, &one.name, symbols);
            let possessive = if is_known(one) {
                format!("{owner}'s ")
            } else {
                String::new()
            };
            format!("{possessive}process {pid}{gpus_and_memory}: {what}")
        }
        (_, Some(job), [owner]) => {
            let possessive = format!("{owner}'s job {}", escaped(&job.to_string(), symbols));
            if is_whole(job, plan) {
                format!("{possessive}: {number} processes{gpus_and_memory}")
            } else {
                format!("{number} processes of {possessive}{gpus_and_memory}")
            }
        }
        (_, Some(job), _) => {
            let (job, of) = (escaped(&job.to_string(), symbols), of_owners(&owners));
            format!("{number} processes{of} in job {job}{gpus_and_memory}")
        }
        (_, None, _) => format!("{number} processes{}{gpus_and_memory}", of_owners(&owners)),
    };
    description + &others
}

fn is_known(target: &KillTarget) -> bool {
    target.owner.last_known().is_some() || target.uid.last_known().is_some()
}

/// The job that contains all ended processes, if there is one.
pub(super) fn common_job(plan: &KillPlan) -> Option<&Job> {
    let mut targets = plan.targets.iter().filter(|target| is_ended(target));
    let job = targets.next()?.job.known()?;
    targets
        .all(|target| target.job.known() == Some(job))
        .then_some(job)
}

/// Whether the plan ends the whole job, as far as it knows.
pub(super) fn is_whole(job: &Job, plan: &KillPlan) -> bool {
    let wide = match plan.request.scope {
        KillScope::Job | KillScope::Container => true,
        KillScope::Process | KillScope::Tree => false,
    };
    wide && plan.remaining_jobs.iter().all(|rest| rest.job != *job)
}

/// ` on GPUs 0-3`; a single process without a GPU is marked, because it may be the wrong one.
fn gpu_phrase(targets: &[&KillTarget]) -> String {
    let holds = targets.iter().flat_map(|target| &target.holds);
    let indices: BTreeSet<u32> = holds.map(|hold| hold.index).into_set();
    let indices: Vec<u32> = indices.into_iter().collect();
    if indices.is_empty() {
        return match targets {
            [_] => " on no GPU".to_owned(),
            _ => String::new(),
        };
    }
    format!(" on {}", gpu_ranges(&indices))
}

fn memory_phrase(targets: &[&KillTarget]) -> String {
    match held_memory(targets.iter().copied()) {
        None => String::new(),
        Some(HeldMemory::All(bytes)) => format!(", {}", size_text(bytes)),
        Some(HeldMemory::AtLeast(bytes)) => format!(", at least {}", size_text(bytes)),
        Some(HeldMemory::Unknown) => ", how much memory is not known".to_owned(),
    }
}

/// The memory that processes hold, as far as it is known.
pub(super) enum HeldMemory {
    /// This much.
    All(Bytes),
    /// This much and an unknown rest.
    AtLeast(Bytes),
    /// An unknown amount.
    Unknown,
}

impl HeldMemory {
    pub(super) fn cell(&self) -> Cell {
        match self {
            Self::All(bytes) => Cell::plain(size(*bytes)),
            Self::AtLeast(bytes) => Cell::with_tone(format!(">{}", size(*bytes)), Tone::Doubtful),
            Self::Unknown => Cell::with_tone("?", Tone::Doubtful),
        }
    }
}

/// The memory that these hold; `None` when they hold no GPU.
pub(super) fn held_memory<'a>(targets: impl Iterator<Item = &'a KillTarget>) -> Option<HeldMemory> {
    let holds: Vec<Option<Bytes>> = targets
        .flat_map(|target| &target.holds)
        .map(|hold| hold.memory.last_known().copied())
        .collect();
    if holds.is_empty() {
        return None;
    }
    let known = holds.iter().flatten();
    let sum = known.clone().map(|bytes| bytes.0);
    let sum = Bytes(sum.fold(0, u64::saturating_add));
    Some(match known.count() {
        0 => HeldMemory::Unknown,
        all if all == holds.len() => HeldMemory::All(sum),
        _ => HeldMemory::AtLeast(sum),
    })
}

/// `252.4 GiB`, below one GiB `214 MiB`
pub(super) fn size_text(bytes: Bytes) -> String {
    if bytes.as_mib() >= 1024 {
        format!("{} GiB", gib(bytes))
    } else if bytes.0 == 0 || bytes.as_mib() > 0 {
        format!("{} MiB", bytes.as_mib())
    } else {
        "less than 1 MiB".to_owned()
    }
}
