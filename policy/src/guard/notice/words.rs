//! Rules, amounts and processes, in as few words as a line of a terminal has room for.

use super::cut;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Evidence, Measured, RuleKind, Told};
use gpukill_proto::rogue::Risk;
use gpukill_proto::text::near_duration;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a rule says: that so much is allowed, or that something is not at all, or what
/// somebody is taken for.
enum Terms {
    /// The words before and after the limit.
    Limit(&'static str, Unit, &'static str),
    Forbidden(&'static str),
    Taken,
}

#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Percent,
    Milliseconds,
    Processes,
}

impl Unit {
    fn of(self, number: u64) -> String {
        match self {
            Self::Bytes => size(number),
            Self::Percent => format!("{number} %"),
            Self::Milliseconds => near_duration(Duration::from_millis(number)),
            Self::Processes if number == 1 => "1 process".to_owned(),
            Self::Processes => format!("{number} processes"),
        }
    }
}

const fn terms(kind: RuleKind) -> Terms {
    use Unit::{Bytes, Milliseconds, Percent, Processes};
    match kind {
        RuleKind::Memory => Terms::Limit("at most ", Bytes, " of memory in all"),
        RuleKind::Utilization => Terms::Limit("at most ", Percent, " of a GPU"),
        RuleKind::Duration => Terms::Limit("a process for at most ", Milliseconds, ""),
        RuleKind::Processes => Terms::Limit("at most ", Processes, ""),
        RuleKind::TotalMemory => Terms::Limit("at most ", Bytes, " of memory together"),
        RuleKind::TotalUtilization => Terms::Limit("at most ", Percent, " of a GPU together"),
        RuleKind::TotalProcesses => Terms::Limit("at most ", Processes, " together"),
        RuleKind::ProcessMemory => Terms::Limit("at most ", Bytes, " of memory a process"),
        RuleKind::GpuUtilization => Terms::Limit("this GPU at most ", Percent, " busy"),
        RuleKind::ReservedMemory => Terms::Limit("", Bytes, " of this GPU stay free"),
        RuleKind::Gpu | RuleKind::User => Terms::Forbidden("you may not use this GPU"),
        RuleKind::Process => Terms::Forbidden("this may not run on this GPU"),
        RuleKind::Maintenance => Terms::Forbidden("this GPU is in maintenance"),
        RuleKind::Hours => Terms::Forbidden("you may not use this GPU at this hour"),
        RuleKind::Idle => Terms::Limit("idle for at most ", Milliseconds, ""),
        RuleKind::Waste => Terms::Limit("at least ", Percent, " busy"),
        RuleKind::Runaway => Terms::Limit("at work for at most ", Milliseconds, ""),
        RuleKind::Growth => Terms::Limit("memory grows by at most ", Bytes, ""),
        RuleKind::Rogue => Terms::Taken,
    }
}

/// `idle for at most 2h 0m, now 2h 5m`, `taken for a crypto miner, critical`
pub(super) fn said(kind: RuleKind, evidence: &Evidence) -> String {
    match (terms(kind), evidence.measured, evidence.threat) {
        (Terms::Limit(before, unit, after), Some(Measured { value, limit }), _) => {
            let (value, limit) = (unit.of(value), unit.of(limit));
            format!("{before}{limit}{after}, now {value}")
        }
        (Terms::Taken, Some(Measured { value, .. }), Some(threat)) => {
            let risk = Risk::of_level(value).map_or("?", Risk::name);
            format!("taken for a {}, {risk}", threat.words())
        }
        (Terms::Limit(..) | Terms::Taken, ..) => kind.name().to_owned(),
        (Terms::Forbidden(said), ..) => said.to_owned(),
    }
}

/// What whoever breaks it can do.
pub(super) const fn to_do(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Idle => "use it or end it",
        RuleKind::Waste => "use more of it or end it",
        RuleKind::Memory
        | RuleKind::TotalMemory
        | RuleKind::ProcessMemory
        | RuleKind::ReservedMemory => "free memory",
        RuleKind::Growth => "look for a leak or end it",
        // Nothing that it does saves it, and the watch may be wrong.
        RuleKind::Rogue => "end it, or ask an admin",
        RuleKind::Utilization | RuleKind::TotalUtilization | RuleKind::GpuUtilization => {
            "leave more to others"
        }
        RuleKind::Processes | RuleKind::TotalProcesses => "end some",
        RuleKind::Duration
        | RuleKind::Runaway
        | RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours => "save your work and end it",
    }
}

/// `pid 51002 python on GPUs 0-3 (48.3 GiB), 3 more`: the first process, and how many
/// others there are; where these are not all, at least. One that is on several GPUs is
/// there once for each.
pub(super) fn pids(runs: &[&Told], is_all: bool) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let process = |told: &Told| (told.run.pid, told.run.start_ticks);
    let of_first = || runs.iter().filter(|told| process(told) == process(first));
    let mut text = format!("pid {}", first.run.pid);
    if let Some(name) = &first.name {
        text.push_str(&format!(" {}", cut(name, NAME)));
    }
    text.push_str(&format!(
        " on {}",
        gpus(of_first().map(|told| told.gpu_index))
    ));
    let memory = of_first().try_fold(0_u64, |sum, told| Some(sum.saturating_add(told.memory?)));
    if let Some(memory) = memory {
        text.push_str(&format!(" ({})", size(memory)));
    }
    let processes: BTreeSet<_> = runs.iter().map(|told| process(told)).into_set();
    text.push_str(&match (processes.len(), is_all) {
        (0 | 1, true) => String::new(),
        (0 | 1, false) => ", perhaps more".to_owned(),
        (several, true) => format!(", {} more", several - 1),
        (several, false) => format!(", {} more at least", several - 1),
    });
    text
}

/// So much of a process's name is shown, in bytes: the kernel keeps 15.
const NAME: usize = 15;

/// So much is said of a process's GPUs.
const GPUS: usize = 14;

/// `GPU 5`, `GPUs 0-3,5`
fn gpus(indices: impl Iterator<Item = u32>) -> String {
    let indices: BTreeSet<u32> = indices.into_set();
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for index in &indices {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*index) => *last = *index,
            Some(_) | None => spans.push((*index, *index)),
        }
    }
    let spans = spans.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    let plural = if indices.len() == 1 { "" } else { "s" };
    let spans: Vec<String> = spans.collect();
    format!("GPU{plural} {}", cut(&spans.join(","), GPUS))
}

/// `48.3 GiB`, `214 MiB`; what there is little of is never nothing.
fn size(bytes: u64) -> String {
    let bytes = Bytes(bytes);
    match bytes.as_mib() {
        0 if bytes.0 > 0 => "under 1 MiB".to_owned(),
        mib if mib < 1024 => format!("{mib} MiB"),
        _ => format!("{:.1} GiB", bytes.as_gib()),
    }
}
