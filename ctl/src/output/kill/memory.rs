//! The memory that came back, and who still holds some.

use super::super::holders::gpus;
use super::super::line::{Line, Tone};
use super::super::look::Look;
use super::super::value::gib;
use super::advice::{sentence, with_command};
use super::heading::{Held, amount, held};
use super::rows::seconds;
use gpukill_proto::kill::{Ending, KillPlan, KillReport, KillTarget, MemoryReturn};
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// `memory: GPUs 0-2 gave back 189.3 of 189.3 GiB in 1.2 s; GPU 3 still holds 63.1
/// GiB (48219)`, and what is missing.
pub(super) fn lines(plan: &KillPlan, report: &KillReport, look: &Look) -> Vec<Line> {
    let mut parts = Vec::new();
    parts.extend(all_back(report));
    parts.extend(report.memory.iter().filter_map(unknown));
    parts.extend(still_held(plan, report));
    let mut lines = Vec::new();
    if !parts.is_empty() {
        let tone = if parts.len() == 1 && all_back(report).is_some() {
            Tone::Plain
        } else {
            Tone::Doubtful
        };
        lines.extend(sentence(
            &format!("memory: {}", parts.join("; ")),
            tone,
            look,
        ));
    }
    for memory in &report.memory {
        if let Some(words) = missing(memory) {
            let command = format!("gpukillctl holders --gpu {}", memory.index);
            lines.extend(with_command(&words, &command, Tone::Doubtful, look));
        }
    }
    lines
}

/// What a GPU gave back of what was held; `None` where one of both is not known.
fn known(memory: &MemoryReturn) -> Option<(Bytes, Bytes)> {
    let returned = memory.returned.known().copied();
    Some((returned?, memory.held.known().copied()?))
}

/// Whether all is free again, of what there was.
fn is_back(memory: &MemoryReturn) -> bool {
    known(memory).is_some_and(|(returned, held)| returned >= held && held.0 > 0)
}

fn all_back(report: &KillReport) -> Option<String> {
    let back = || report.memory.iter().filter(|memory| is_back(memory));
    let sum = back().filter_map(known).map(|(_, held)| held.0);
    let sum = sum.fold(0, u64::saturating_add);
    let mut indices: Vec<u32> = back().map(|memory| memory.index).collect();
    indices.sort_unstable();
    if indices.is_empty() {
        return None;
    }
    let took = back().filter_map(|memory| memory.after_ms).max();
    let took = took.map_or_else(String::new, |took| format!(" in {}", seconds(took)));
    let (gpus, of) = (gpus(&indices), of(Bytes(sum), Bytes(sum)));
    Some(format!("{gpus} gave back {of}{took}"))
}

fn unknown(memory: &MemoryReturn) -> Option<String> {
    known(memory)
        .is_none()
        .then(|| format!("what GPU {} gave back is not known", memory.index))
}

fn missing(memory: &MemoryReturn) -> Option<String> {
    let (returned, held) = known(memory).filter(|(returned, held)| returned < held)?;
    let (index, of) = (memory.index, of(returned, held));
    Some(format!(
        "memory: GPU {index} gave back {of}; who has the rest:"
    ))
}

/// What survivors hold, for each GPU.
fn still_held(plan: &KillPlan, report: &KillReport) -> Vec<String> {
    let survivors: Vec<&KillTarget> = plan
        .targets
        .iter()
        .filter(|target| survived(target, report))
        .collect();
    let of_plan = survivors.iter().flat_map(|target| &target.holds);
    let of_report = report.memory.iter();
    let indices: BTreeSet<u32> = of_report
        .filter(|memory| !memory.still_held_by.is_empty())
        .map(|memory| memory.index)
        .chain(of_plan.map(|hold| hold.index))
        .collect();
    indices
        .into_iter()
        .map(|index| still_held_of(index, &survivors, report))
        .collect()
}

fn still_held_of(index: u32, survivors: &[&KillTarget], report: &KillReport) -> String {
    let here: Vec<KillTarget> = survivors
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
    let told = report.memory.iter().filter(|memory| memory.index == index);
    let told = told.flat_map(|memory| memory.still_held_by.iter().copied());
    let pids: BTreeSet<u32> = here
        .iter()
        .map(|target| target.key.pid)
        .chain(told)
        .collect();
    let all_known = pids.len() == here.len();
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let pids = pids.join(", ");
    match held(here.iter()) {
        Some(Held::All(bytes)) if all_known => {
            format!("GPU {index} still holds {} ({pids})", amount(bytes))
        }
        Some(Held::All(bytes) | Held::AtLeast(bytes)) => {
            format!(
                "GPU {index} still holds at least {} ({pids})",
                amount(bytes)
            )
        }
        Some(Held::Unknown) | None => format!("GPU {index} is still held ({pids})"),
    }
}

fn survived(target: &KillTarget, report: &KillReport) -> bool {
    let outcome = report.outcomes.iter().find(|it| it.key == target.key);
    outcome.is_some_and(|outcome| match outcome.ending {
        Ending::Survived(..) | Ending::Uninterruptible(_) => true,
        Ending::Ended(..)
        | Ending::Gone
        | Ending::Changed(_)
        | Ending::Protected(_)
        | Ending::Denied(_)
        | Ending::Unclear(_)
        | Ending::Zombie(_)
        | Ending::Failed(_) => false,
    })
}

/// `189.3 of 189.3 GiB`
fn of(part: Bytes, whole: Bytes) -> String {
    if whole.as_mib() >= 1024 {
        format!("{} of {} GiB", gib(part), gib(whole))
    } else {
        format!("{} of {} MiB", part.as_mib(), whole.as_mib())
    }
}
