//! Violations in words: who, what, how much.

use crate::output::markers::ends_text;
use crate::output::value::{self, counted_processes, size};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{
    EnforcementOutcome, Evidence, EvidenceProcess, GuardMode, GuardRecord, GuardStep, Measurement,
    MilderPolicy, OpenViolation, RuleKind, ViolationSubject, count_jobs,
};
use gpukill_proto::model::NetworkRole;
use gpukill_proto::rogue::Risk;
use gpukill_proto::text::format_duration_with_seconds;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

pub(in crate::output) fn subject_name(subject: &ViolationSubject, evidence: &Evidence) -> String {
    let first = || evidence.runs.first();
    match subject {
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
            person.name.clone()
        }
        ViolationSubject::Job(job) => job.owner.name.clone(),
        ViolationSubject::Group(name) | ViolationSubject::GroupOn(name, _) => {
            format!("group {name}")
        }
        ViolationSubject::Device(_) => "all".to_owned(),
        ViolationSubject::Run(_) => first()
            .and_then(|process| process.owner.as_ref())
            .map_or_else(|| "?".to_owned(), |owner| owner.name.clone()),
    }
}

/// The indices of the devices: `0`, `0-3`, `0,2`.
pub(super) fn device_indices(runs: &[EvidenceProcess]) -> String {
    value::gpus(runs.iter().map(|process| process.gpu_index))
}

/// The processes: the first by pid and name, and the number of the others.
pub(super) fn processes(runs: &[EvidenceProcess], count: u32) -> String {
    match runs.first() {
        Some(first) => format!("{} {}", first.run.pid, names(runs, count)),
        None => String::new(),
    }
}

/// The processes without the pid: `vllm, 12 more`.
pub(super) fn names(runs: &[EvidenceProcess], count: u32) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let name = first.name.clone().unwrap_or_else(|| "?".to_owned());
    // A process on two devices has two runs. Whether those that are not listed are further
    // processes is not known.
    let processes: BTreeSet<_> = runs.iter().map(|it| it.run.process()).into_set();
    let unlisted = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .saturating_sub(runs.len());
    match processes.len().saturating_add(unlisted) {
        0 | 1 => name,
        several => format!("{name}, {} more", several - 1),
    }
}

pub(super) fn first_pid(runs: &[EvidenceProcess]) -> String {
    let first = runs.first();
    first.map_or_else(String::new, |first| first.run.pid.to_string())
}

/// The measured value and its limit: `61.0 GiB of 40.0 GiB`; for a rule without a number what
/// is wrong: `crypto miner, critical`.
pub(in crate::output) fn measured_text(kind: RuleKind, evidence: &Evidence) -> String {
    let Some(measured) = evidence.measured else {
        return forbidden_text(kind).to_owned();
    };
    if kind != RuleKind::Rogue {
        return amounts_text(kind, measured);
    }
    let risk = amount_text(kind, measured.value);
    match evidence.threat {
        Some(threat) => format!("{}, {risk}", threat.label()),
        None => risk,
    }
}

/// A measured value and its limit: `61.0G of 40.0G`
pub(super) fn amounts_text(kind: RuleKind, measured: Measurement) -> String {
    let Measurement { value, limit } = measured;
    let [value, limit] = [value, limit].map(|number| amount_text(kind, number));
    match kind {
        RuleKind::Waste => format!("{value}, under {limit}"),
        _ => format!("{value} of {limit}"),
    }
}

/// The text for a rule that allows or forbids something; empty for a rule with a limit, when
/// nothing was measured.
const fn forbidden_text(kind: RuleKind) -> &'static str {
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

pub(super) fn amount_text(kind: RuleKind, number: u64) -> String {
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
            format_duration_with_seconds(Duration::from_millis(number))
        }
        RuleKind::Rogue => match Risk::from_level(number) {
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

/// The consequence of a violation at its deadline, as far as the job is known: `would end`, `1
/// ends`, `1 of 2 would end`.
pub(super) fn ending_text(open: &OpenViolation) -> String {
    let ends = ends_text(open.mode);
    match count_jobs(open) {
        Some(1) => ends.to_owned(),
        Some(several) => format!("1 of {several} {ends}"),
        None => format!("1 {ends}"),
    }
}

/// No job is ended for the violation, whatever the mode.
pub(super) const fn own_policy_text(own_policy: MilderPolicy) -> &'static str {
    match own_policy {
        MilderPolicy::Warned => "warned only: own policy",
        MilderPolicy::DryRun => "nobody: own policy",
    }
}

/// The violation ends no job, because the job is a service; other rules may end it.
pub(super) const fn warn_only_text(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Waste => "for waste only warned",
        _ => "for idleness only warned",
    }
}

/// `port 8000, no client`, `ports 8000, 8001, 2 connections`; `None` for a job that others
/// cannot reach. One client may make many connections.
pub(in crate::output) fn reachability(
    role: &NetworkRole,
    connections: Option<u32>,
) -> Option<String> {
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

/// The reachable ports of a process in the evidence.
pub(super) fn evidence_reachability(process: &EvidenceProcess) -> Option<String> {
    reachability(
        process.context.network_role.as_ref()?,
        process.context.clients,
    )
}

/// Where the first process in the evidence runs, and how others use it: `vllm.service, image
/// vllm/vllm-openai:v0.9, port 8000, no client`
pub(super) fn context_text(evidence: &Evidence) -> Option<String> {
    let first = evidence.runs.first()?;
    let image = first.context.image.as_ref();
    let parts = [
        first.context.unit.clone(),
        image.map(|image| format!("image {image}")),
        evidence_reachability(first),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Which of several jobs is ended.
pub(super) const SELECTION_NOTE: &str = "1 of several: a job of the lowest priority that frees \
    enough, an idle one first, then the youngest";

/// `2 processes ended`, `1 of 2 ended: 4711 is stuck in the kernel`
fn outcome_text(outcome: &EnforcementOutcome) -> String {
    let all = outcome.ended.saturating_add(outcome.left);
    let count = match outcome.left {
        0 => format!("{} ended", counted_processes(all as usize)),
        _ => format!("{} of {all} ended", outcome.ended),
    };
    match &outcome.why {
        Some(why) => format!("{count}: {why}"),
        None => count,
    }
}

/// The event; in a dry run, the event that it simulates.
pub(in crate::output) fn step_text(record: &GuardRecord) -> String {
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
        GuardStep::Exempt(why) => format!("nobody ended: {why}"),
        GuardStep::Snoozed { left, .. } => format!("more time, {left} left"),
        GuardStep::SnoozeVoided { .. } => "snooze void: its rule is gone".to_owned(),
        GuardStep::Doubted(doubt) => {
            format!(
                "may not fit this host: {} of {} users",
                doubt.people, doubt.of
            )
        }
        GuardStep::Outcome(outcome) => outcome_text(outcome),
        GuardStep::Tripped { ended } if record.mode <= GuardMode::DryRun => {
            format!("would have stopped: {ended} jobs would have ended in 10 min")
        }
        GuardStep::Tripped { ended } => format!("stopped: {ended} jobs ended in 10 min"),
        GuardStep::Over => "over".to_owned(),
        GuardStep::Outdated => "starts again: rules or mode changed, or it stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::{ProcessContext, RunKey};
    use gpukill_proto::model::DeviceId;
    use gpukill_proto::rogue::Threat;
    use gpukill_proto::units::Timestamp;

    #[test]
    fn process_on_two_devices_is_one() {
        let run = |pid, device: &str| EvidenceProcess {
            run: RunKey {
                pid,
                start_ticks: 7,
                device: DeviceId(device.into()),
                instance: None,
            },
            gpu_index: 0,
            owner: None,
            name: Some("vllm".into()),
            memory: None,
            utilization: None,
            job: None,
            context: ProcessContext::default(),
        };
        let two = [run(1, "a"), run(1, "b")];
        assert_eq!(names(&two, 2), "vllm");
        assert_eq!(names(&[run(1, "a"), run(2, "a")], 2), "vllm, 1 more");
        // One is not listed.
        assert_eq!(names(&two, 3), "vllm, 1 more");
        assert_eq!(names(&[], 3), "");
    }

    #[test]
    fn rogue_violation_names_threat_and_risk() {
        let value_text = |threat: Option<Threat>, value: u64| {
            let evidence = Evidence {
                measured: Some(Measurement { value, limit: 3 }),
                since: Timestamp(0),
                runs: Vec::new(),
                count: 1,
                unknown: 0,
                threat,
                is_service_only_warned: false,
            };
            measured_text(RuleKind::Rogue, &evidence)
        };
        assert_eq!(
            value_text(Some(Threat::CryptoMiner), Risk::Critical.level()),
            "crypto miner, critical"
        );
        assert_eq!(
            value_text(Some(Threat::SuspiciousProcess), Risk::High.level()),
            "suspicious process, high"
        );
        assert_eq!(value_text(None, 2), "medium");
        // A risk level from a newer daemon.
        assert_eq!(value_text(None, 7), "7");
        let levels = Risk::ALL.map(|risk| amount_text(RuleKind::Rogue, risk.level()));
        assert_eq!(levels, ["low", "medium", "high", "critical"]);
    }
}
