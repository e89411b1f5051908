//! The memory that was released, and the processes that still hold some.

use super::super::holders::gpu_ranges;
use super::super::style::OutputStyle;
use super::super::text::{Line, Tone, wrapped_lines};
use super::super::value::gib;
use super::advice::with_command;
use super::heading::{HeldMemory, held_memory, size_text};
use super::rows::seconds_text;
use gpukill_policy::kill::outcome::is_missing;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillPlan, KillReport, KillTarget, MemoryReclaim, Outcome};
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// `memory: GPUs 0-2 gave back 189.3 of 189.3 GiB in 1.2 s; GPU 3 still holds 63.1 GiB
/// (48219)`, and missing memory.
pub(super) fn lines(plan: &KillPlan, report: &KillReport, style: &OutputStyle) -> Vec<Line> {
    let mut parts = Vec::new();
    parts.extend(returned_text(report));
    parts.extend(report.memory.iter().filter_map(unknown_text));
    parts.extend(still_held_texts(plan, report));
    let mut lines = Vec::new();
    if !parts.is_empty() {
        let tone = if parts.len() == 1 && returned_text(report).is_some() {
            Tone::Plain
        } else {
            Tone::Doubtful
        };
        let words = format!("memory: {}", parts.join("; "));
        lines.extend(wrapped_lines(&words, tone, style));
    }
    for memory in &report.memory {
        if let Some(words) = missing_text(memory) {
            let command = format!("gpukillctl holders --gpu {}", memory.index);
            lines.extend(with_command(&words, &command, Tone::Doubtful, style));
        }
    }
    lines
}

/// The released and the held memory of a GPU; `None` when either is not known.
fn known_amounts(memory: &MemoryReclaim) -> Option<(Bytes, Bytes)> {
    let returned = memory.returned.known().copied();
    Some((returned?, memory.held.known().copied()?))
}

/// Whether all held memory is free again.
fn is_back(memory: &MemoryReclaim) -> bool {
    known_amounts(memory).is_some_and(|(returned, held)| returned >= held && held.0 > 0)
}

fn returned_text(report: &KillReport) -> Option<String> {
    let back = || report.memory.iter().filter(|memory| is_back(memory));
    let sum = back().filter_map(known_amounts).map(|(_, held)| held.0);
    let sum = sum.fold(0, u64::saturating_add);
    let mut indices: Vec<u32> = back().map(|memory| memory.index).collect();
    indices.sort_unstable();
    if indices.is_empty() {
        return None;
    }
    let took = back().filter_map(|memory| memory.after_ms).max();
    let took = took.map_or_else(String::new, |took| format!(" in {}", seconds_text(took)));
    let (gpus, of) = (gpu_ranges(&indices), part_of_whole(Bytes(sum), Bytes(sum)));
    Some(format!("{gpus} gave back {of}{took}"))
}

fn unknown_text(memory: &MemoryReclaim) -> Option<String> {
    known_amounts(memory).is_none().then(|| {
        format!(
            "the memory that GPU {} gave back is not known",
            memory.index
        )
    })
}

fn missing_text(memory: &MemoryReclaim) -> Option<String> {
    let (returned, held) = known_amounts(memory).filter(|_| is_missing(memory))?;
    let (index, of) = (memory.index, part_of_whole(returned, held));
    Some(format!(
        "memory not returned: GPU {index} gave back {of}; who has the rest:"
    ))
}

/// The memory that survivors hold, for each GPU.
fn still_held_texts(plan: &KillPlan, report: &KillReport) -> Vec<String> {
    let survivors: Vec<&KillTarget> = plan
        .targets
        .iter()
        .filter(|target| has_survived(target, report))
        .collect();
    let of_plan = survivors.iter().flat_map(|target| &target.holds);
    let of_report = report.memory.iter();
    let indices: BTreeSet<u32> = of_report
        .filter(|memory| !memory.still_held_by.is_empty())
        .map(|memory| memory.index)
        .chain(of_plan.map(|hold| hold.index))
        .into_set();
    indices
        .into_iter()
        .map(|index| still_held_text(index, &survivors, report))
        .collect()
}

fn still_held_text(index: u32, survivors: &[&KillTarget], report: &KillReport) -> String {
    let still_holding: Vec<KillTarget> = survivors
        .iter()
        .map(|target| KillTarget {
            holds: target
                .holds
                .iter()
                .filter(|hold| hold.index == index)
                .cloned()
                .collect(),
            ..(*target).clone()
        })
        .filter(|target| !target.holds.is_empty())
        .collect();
    let holders = report.memory.iter().filter(|memory| memory.index == index);
    let holders = holders.flat_map(|memory| memory.still_held_by.iter().copied());
    let pids: BTreeSet<u32> = still_holding
        .iter()
        .map(|target| target.key.pid)
        .chain(holders)
        .into_set();
    let all_known = pids.len() == still_holding.len();
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let pids = pids.join(", ");
    match held_memory(still_holding.iter()) {
        Some(HeldMemory::All(bytes)) if all_known => {
            format!("GPU {index} still holds {} ({pids})", size_text(bytes))
        }
        Some(HeldMemory::All(bytes) | HeldMemory::AtLeast(bytes)) => {
            format!(
                "GPU {index} still holds at least {} ({pids})",
                size_text(bytes)
            )
        }
        Some(HeldMemory::Unknown) | None => format!("GPU {index} is still held ({pids})"),
    }
}

fn has_survived(target: &KillTarget, report: &KillReport) -> bool {
    let outcome = report.outcomes.iter().find(|it| it.key == target.key);
    outcome.is_some_and(|outcome| match outcome.outcome {
        Outcome::Survived(..) | Outcome::Uninterruptible(_) => true,
        Outcome::Ended(..)
        | Outcome::Gone
        | Outcome::Changed(_)
        | Outcome::Protected(_)
        | Outcome::Denied(_)
        | Outcome::Unclear(_)
        | Outcome::Zombie(_)
        | Outcome::Failed(_) => false,
    })
}

/// `189.3 of 189.3 GiB`
fn part_of_whole(part: Bytes, whole: Bytes) -> String {
    if whole.as_mib() >= 1024 {
        format!("{} of {} GiB", gib(part), gib(whole))
    } else {
        format!("{} of {} MiB", part.as_mib(), whole.as_mib())
    }
}
