//! The wording of rules, amounts and processes, short enough for a line of a terminal.

use super::truncate;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Evidence, EvidenceProcess, Measurement, RuleKind};
use gpukill_proto::rogue::Risk;
use gpukill_proto::text::format_duration_with_seconds;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// The statement of a rule: a limit, a prohibition, or the verdict that it acts on.
enum RuleTerms {
    /// The words before and after the limit.
    Limit(&'static str, QuantityUnit, &'static str),
    Forbidden(&'static str),
    Verdict,
}

#[derive(Clone, Copy)]
enum QuantityUnit {
    Bytes,
    Percent,
    Milliseconds,
    Processes,
}

impl QuantityUnit {
    fn format(self, number: u64) -> String {
        match self {
            Self::Bytes => format_size(number),
            Self::Percent => format!("{number} %"),
            Self::Milliseconds => format_duration_with_seconds(Duration::from_millis(number)),
            Self::Processes if number == 1 => "1 process".to_owned(),
            Self::Processes => format!("{number} processes"),
        }
    }
}

const fn rule_terms(kind: RuleKind) -> RuleTerms {
    use QuantityUnit::{Bytes, Milliseconds, Percent, Processes};
    match kind {
        RuleKind::Memory => RuleTerms::Limit("at most ", Bytes, " of memory in all"),
        RuleKind::Utilization => RuleTerms::Limit("at most ", Percent, " of a GPU"),
        RuleKind::Duration => RuleTerms::Limit("a process for at most ", Milliseconds, ""),
        RuleKind::Processes => RuleTerms::Limit("at most ", Processes, ""),
        RuleKind::TotalMemory => RuleTerms::Limit("at most ", Bytes, " of memory together"),
        RuleKind::TotalUtilization => RuleTerms::Limit("at most ", Percent, " of a GPU together"),
        RuleKind::TotalProcesses => RuleTerms::Limit("at most ", Processes, " together"),
        RuleKind::ProcessMemory => RuleTerms::Limit("at most ", Bytes, " of memory per process"),
        RuleKind::GpuUtilization => RuleTerms::Limit("this GPU at most ", Percent, " busy"),
        RuleKind::ReservedMemory => RuleTerms::Limit("", Bytes, " of this GPU must stay free"),
        RuleKind::Gpu | RuleKind::User => RuleTerms::Forbidden("you may not use this GPU"),
        RuleKind::Process => RuleTerms::Forbidden("this program may not use this GPU"),
        RuleKind::Maintenance => RuleTerms::Forbidden("this GPU is in maintenance"),
        RuleKind::Hours => RuleTerms::Forbidden("you may not use this GPU at this hour"),
        RuleKind::Idle => RuleTerms::Limit("idle for at most ", Milliseconds, ""),
        RuleKind::Waste => RuleTerms::Limit("at least ", Percent, " busy"),
        RuleKind::Runaway => RuleTerms::Limit("at work for at most ", Milliseconds, ""),
        RuleKind::Growth => RuleTerms::Limit("memory grows by at most ", Bytes, ""),
        RuleKind::Rogue => RuleTerms::Verdict,
    }
}

/// `idle for at most 2h 0m, now 2h 5m`, `suspected crypto miner, critical risk`
pub(super) fn describe_measurement(kind: RuleKind, evidence: &Evidence) -> String {
    match (rule_terms(kind), evidence.measured, evidence.threat) {
        (RuleTerms::Limit(before, unit, after), Some(Measurement { value, limit }), _) => {
            let (value, limit) = (unit.format(value), unit.format(limit));
            format!("{before}{limit}{after}, now {value}")
        }
        (RuleTerms::Verdict, Some(Measurement { value, .. }), Some(threat)) => {
            let risk = Risk::from_level(value).map_or("?", Risk::name);
            format!("suspected {}, {risk} risk", threat.label())
        }
        (RuleTerms::Limit(..) | RuleTerms::Verdict, ..) => kind.name().to_owned(),
        (RuleTerms::Forbidden(text), ..) => text.to_owned(),
    }
}

/// The remedies of the violator.
pub(super) const fn advice(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Idle => "use it or end it",
        RuleKind::Waste => "use more of it or end it",
        RuleKind::Memory
        | RuleKind::TotalMemory
        | RuleKind::ProcessMemory
        | RuleKind::ReservedMemory => "free memory",
        RuleKind::Growth => "look for a leak or end it",
        // Nothing that the process does saves it, and the verdict may be wrong.
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

/// `pid 51002 python on GPUs 0-3 (48.3 GiB), 3 more`: the first process and the number of
/// others, or a lower bound of it if the list is not complete. A process on several GPUs
/// occurs in `runs` once for each.
pub(super) fn describe_processes(runs: &[&EvidenceProcess], is_all: bool) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let process = |run: &EvidenceProcess| (run.run.pid, run.run.start_ticks);
    let of_first = || runs.iter().filter(|run| process(run) == process(first));
    let mut text = format!("pid {}", first.run.pid);
    if let Some(name) = &first.name {
        text.push_str(&format!(" {}", truncate(name, NAME_BYTES)));
    }
    text.push_str(&format!(
        " on {}",
        format_gpus(of_first().map(|run| run.gpu_index))
    ));
    let memory = of_first().try_fold(0_u64, |sum, run| Some(sum.saturating_add(run.memory?)));
    if let Some(memory) = memory {
        text.push_str(&format!(" ({})", format_size(memory)));
    }
    let processes: BTreeSet<_> = runs.iter().map(|run| process(run)).into_set();
    text.push_str(&match (processes.len(), is_all) {
        (0 | 1, true) => String::new(),
        (0 | 1, false) => ", perhaps more".to_owned(),
        (several, true) => format!(", {} more", several - 1),
        (several, false) => format!(", {} more at least", several - 1),
    });
    text
}

/// How many bytes of a process name are shown: the kernel keeps 15.
const NAME_BYTES: usize = 15;

/// How many bytes of the list of GPUs are shown.
const GPUS_BYTES: usize = 14;

/// `GPU 5`, `GPUs 0-3,5`
fn format_gpus(indices: impl Iterator<Item = u32>) -> String {
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
    format!("GPU{plural} {}", truncate(&spans.join(","), GPUS_BYTES))
}

/// `48.3 GiB`, `214 MiB`. A small size is never shown as 0.
fn format_size(bytes: u64) -> String {
    let bytes = Bytes(bytes);
    match bytes.as_mib() {
        0 if bytes.0 > 0 => "under 1 MiB".to_owned(),
        mib if mib < 1024 => format!("{mib} MiB"),
        _ => format!("{:.1} GiB", bytes.as_gib()),
    }
}
