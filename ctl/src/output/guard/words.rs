//! Violations in words: who, what, how much.

use crate::output::mark::ends;
use crate::output::value::{self, size};
use gpukill_proto::guard::{
    Acted, Evidence, GuardMode, GuardRecord, GuardStep, Measured, Milder, OpenViolation, RuleKind,
    Subject, Told, jobs,
};
use gpukill_proto::rogue::Risk;
use gpukill_proto::snapshot::NetworkRole;
use gpukill_proto::text::near_duration;
use gpukill_proto::units::Bytes;
use std::time::Duration;

/// Who broke a rule, as people call them.
pub(super) fn who(subject: &Subject, evidence: &Evidence) -> String {
    let first = || evidence.runs.first();
    match subject {
        Subject::Person(person) | Subject::PersonOn(person, _) => person.name.clone(),
        Subject::Job(job) => job.owner.name.clone(),
        Subject::Group(name) | Subject::GroupOn(name, _) => format!("group {name}"),
        Subject::Device(_) => "all".to_owned(),
        Subject::Run(_) => first()
            .and_then(|told| told.owner.as_ref())
            .map_or_else(|| "?".to_owned(), |owner| owner.name.clone()),
    }
}

/// The indices of the devices it is about: `0`, `0-3`, `0,2`.
pub(super) fn gpus(runs: &[Told]) -> String {
    value::gpus(runs.iter().map(|told| told.gpu_index))
}

/// The processes: the first by name, and how many there are more.
pub(super) fn processes(runs: &[Told], count: u32) -> String {
    match runs.first() {
        Some(first) => format!("{} {}", first.run.pid, names(runs, count)),
        None => String::new(),
    }
}

/// The same without the pid: `vllm, 12 more`.
pub(super) fn names(runs: &[Told], count: u32) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let name = first.name.clone().unwrap_or_else(|| "?".to_owned());
    match count {
        0 | 1 => name,
        several => format!("{name}, {} more", several - 1),
    }
}

/// The pid of the first.
pub(super) fn pid(runs: &[Told]) -> String {
    let first = runs.first();
    first.map_or_else(String::new, |first| first.run.pid.to_string())
}

/// The number and its limit: `61.0 GiB of 40.0 GiB`; what is wrong, where it is not about
/// a number: `crypto miner, critical`.
pub(super) fn measured(kind: RuleKind, evidence: &Evidence) -> String {
    let Some(Measured { value, limit }) = evidence.measured else {
        return unallowed(kind).to_owned();
    };
    let text = |number| amount(kind, number);
    match kind {
        RuleKind::Waste => format!("{}, under {}", text(value), text(limit)),
        RuleKind::Rogue => match evidence.threat {
            Some(threat) => format!("{}, {}", threat.words(), text(value)),
            None => text(value),
        },
        RuleKind::Memory
        | RuleKind::Utilization
        | RuleKind::Duration
        | RuleKind::Processes
        | RuleKind::TotalMemory
        | RuleKind::TotalUtilization
        | RuleKind::TotalProcesses
        | RuleKind::ProcessMemory
        | RuleKind::GpuUtilization
        | RuleKind::ReservedMemory
        | RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours
        | RuleKind::Idle
        | RuleKind::Runaway
        | RuleKind::Growth => format!("{} of {}", text(value), text(limit)),
    }
}

/// Said of a violation of a rule that allows something or does not; nothing of one that has
/// a limit, where nothing was measured.
const fn unallowed(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Gpu | RuleKind::User => "may not use it",
        RuleKind::Process => "may not run here",
        RuleKind::Maintenance => "in maintenance",
        RuleKind::Hours => "not at this hour",
        RuleKind::Memory
        | RuleKind::Utilization
        | RuleKind::Duration
        | RuleKind::Processes
        | RuleKind::TotalMemory
        | RuleKind::TotalUtilization
        | RuleKind::TotalProcesses
        | RuleKind::ProcessMemory
        | RuleKind::GpuUtilization
        | RuleKind::ReservedMemory
        | RuleKind::Idle
        | RuleKind::Waste
        | RuleKind::Runaway
        | RuleKind::Growth
        | RuleKind::Rogue => "",
    }
}

pub(super) fn amount(kind: RuleKind, number: u64) -> String {
    match kind {
        RuleKind::Memory
        | RuleKind::TotalMemory
        | RuleKind::ProcessMemory
        | RuleKind::ReservedMemory
        | RuleKind::Growth => size(Bytes(number)),
        RuleKind::Utilization
        | RuleKind::TotalUtilization
        | RuleKind::GpuUtilization
        | RuleKind::Waste => format!("{number} %"),
        RuleKind::Duration | RuleKind::Idle | RuleKind::Runaway => {
            near_duration(Duration::from_millis(number))
        }
        RuleKind::Rogue => match Risk::of_level(number) {
            Some(risk) => risk.name().to_owned(),
            None => number.to_string(),
        },
        RuleKind::Processes
        | RuleKind::TotalProcesses
        | RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours => number.to_string(),
    }
}

/// `would end`, `1 ends`, `1 of 2 would end`: what comes of a violation at its end, as
/// far as is known of whose job that is.
pub(super) fn ending(open: &OpenViolation) -> String {
    let ends = ends(open.mode);
    match jobs(open) {
        Some(1) => ends.to_owned(),
        Some(several) => format!("1 of {several} {ends}"),
        None => format!("1 {ends}"),
    }
}

/// That nobody is ended for a violation, whatever the mode.
pub(super) const fn spares(own_policy: Milder) -> &'static str {
    match own_policy {
        Milder::Warned => "warned only: own policy",
        Milder::Rehearsed => "nobody: own policy",
    }
}

/// That a violation ends no job, as the job is a service: other rules may.
pub(super) const fn only_warned(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Waste => "for waste only warned",
        _ => "for idleness only warned",
    }
}

/// `port 8000, no client`, `ports 8000, 8001, 2 connections`; nothing of a job that others
/// cannot reach. One client may make many connections.
pub(in crate::output) fn reached(role: &NetworkRole, connections: Option<u32>) -> Option<String> {
    let ports = role.ports();
    let numbers: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = match numbers.as_slice() {
        [] => return None,
        [port] => format!("port {port}"),
        [..] => format!("ports {}", numbers.join(", ")),
    };
    Some(match connections {
        None => ports,
        Some(0) => format!("{ports}, no client"),
        Some(1) => format!("{ports}, 1 connection"),
        Some(connections) => format!("{ports}, {connections} connections"),
    })
}

/// The same of a process in the evidence.
pub(super) fn reached_as(told: &Told) -> Option<String> {
    reached(told.context.network_role.as_ref()?, told.context.clients)
}

/// `vllm.service, image vllm/vllm-openai:v0.9, port 8000, no client`: where the first
/// process in the evidence runs, and how others use it.
pub(super) fn context(evidence: &Evidence) -> Option<String> {
    let first = evidence.runs.first()?;
    let image = first.context.image.as_ref();
    let parts = [
        first.context.unit.clone(),
        image.map(|image| format!("image {image}")),
        reached_as(first),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Which of several jobs is the one that is ended.
pub(super) const WHICH: &str = "1 of several: of the jobs of the lowest priority one that is \
    enough, an idle one first, then the youngest";

/// `2 processes ended`, `1 of 2 ended: 4711 is stuck in the kernel`
fn outcome(acted: &Acted) -> String {
    let all = acted.ended.saturating_add(acted.left);
    let processes = if all == 1 { "process" } else { "processes" };
    let count = match acted.left {
        0 => format!("{all} {processes} ended"),
        _ => format!("{} of {all} ended", acted.ended),
    };
    match &acted.why {
        Some(why) => format!("{count}: {why}"),
        None => count,
    }
}

/// What happened: in a dry run, what would have.
pub(super) fn step(record: &GuardRecord) -> String {
    let (warned, ended) = match record.mode {
        GuardMode::Disabled | GuardMode::DryRun => ("would warn", "would end"),
        GuardMode::Soft | GuardMode::Enforce => ("warned", "ends"),
    };
    match &record.step {
        GuardStep::Violated => "violated".to_owned(),
        GuardStep::Warned { times: 1, .. } => warned.to_owned(),
        GuardStep::Warned { times, .. } => format!("{warned} ({times})"),
        GuardStep::Ended(victim) => match &victim.leave_to {
            Some(command) => format!("left: {command}"),
            None => ended.to_owned(),
        },
        GuardStep::Spared(why) => format!("nobody ended: {why}"),
        GuardStep::Snoozed { left, .. } => format!("more time, {left} left"),
        GuardStep::SnoozeVoided { .. } => "snooze void: its rule is gone".to_owned(),
        GuardStep::Doubted(doubt) => {
            format!(
                "may not fit this box: {} of {} people",
                doubt.people, doubt.of
            )
        }
        GuardStep::Acted(acted) => outcome(acted),
        GuardStep::Tripped { ended } if record.mode <= GuardMode::DryRun => {
            format!("would have stopped: {ended} jobs would have ended in 10 min")
        }
        GuardStep::Tripped { ended } => format!("stopped: {ended} jobs ended in 10 min"),
        GuardStep::Over => "over".to_owned(),
        GuardStep::Outdated => "begins anew: rules or mode changed, or it stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::rogue::Threat;
    use gpukill_proto::units::Timestamp;

    #[test]
    fn who_is_taken_for_a_threat_is_told_for_which_and_how_much_of_one() {
        let said = |threat: Option<Threat>, value: u64| {
            let evidence = Evidence {
                measured: Some(Measured { value, limit: 3 }),
                since: Timestamp(0),
                runs: Vec::new(),
                count: 1,
                unknown: 0,
                threat,
                is_spared_service: false,
            };
            measured(RuleKind::Rogue, &evidence)
        };
        assert_eq!(
            said(Some(Threat::CryptoMiner), Risk::Critical.level()),
            "crypto miner, critical"
        );
        assert_eq!(
            said(Some(Threat::SuspiciousProcess), Risk::High.level()),
            "suspicious process, high"
        );
        assert_eq!(said(None, 2), "medium");
        // From a daemon that knows more of them.
        assert_eq!(said(None, 7), "7");
        let levels = Risk::ALL.map(|risk| amount(RuleKind::Rogue, risk.level()));
        assert_eq!(levels, ["low", "medium", "high", "critical"]);
    }
}
