//! Records as text.

use gpukill_proto::guard::{
    GuardRecord, GuardStep, Measurement, Person, RuleKind, ViolationSubject,
};
use gpukill_proto::rogue::Risk;
use gpukill_proto::units::Timestamp;

/// `00:14:20 bob: default: idle: warned, ends 00:19:20`
pub(crate) fn record_line(record: &GuardRecord) -> String {
    let subject = subject_name(&record.subject);
    let step = match &record.step {
        GuardStep::Violated => match record.evidence.measured {
            Some(measured) => {
                let measurement = format_measurement(record.rule.kind, measured);
                format!(
                    "violated, {measurement} since {}",
                    format_time(record.evidence.since)
                )
            }
            None => "violated".to_owned(),
        },
        GuardStep::Warned { times, deadline } => {
            let times = match times {
                1 => String::new(),
                times => format!(" again ({times})"),
            };
            match deadline {
                Some(deadline) => format!("warned{times}, ends {}", format_time(*deadline)),
                None => format!("warned{times}"),
            }
        }
        GuardStep::Ended(victim) => {
            let job = &victim.job;
            let busy = match victim.is_busy {
                Some(true) => ", which works",
                Some(false) => "",
                None => ", which may work",
            };
            let what = format!(
                "{} of {} (priority {}, {} on GPUs{busy})",
                job.shown, job.owner.name, victim.priority, victim.count
            );
            match &victim.leave_to {
                Some(command) => format!("asks for: {command}, to end {what}"),
                None => format!("ends {what}"),
            }
        }
        GuardStep::Exempt(why) => format!("nobody is ended: {why}"),
        GuardStep::Over => "over".to_owned(),
        GuardStep::Outdated => "outdated".to_owned(),
        GuardStep::Snoozed { until, left, .. } => {
            format!("more time until {}, {left} left", format_time(*until))
        }
        GuardStep::SnoozeVoided { until, .. } => {
            format!("snooze until {} void", format_time(*until))
        }
        GuardStep::Doubted(it) => format!("may not fit: {} of {} people", it.people, it.of),
        GuardStep::Outcome(outcome) => format!("{} ended, {} left", outcome.ended, outcome.left),
        GuardStep::Tripped { ended } => format!("stops: {ended} were ended"),
    };
    let mode = record.mode.name();
    format!(
        "{} {subject}: {}: {step} [{mode}]",
        format_time(record.at),
        record.rule
    )
}

fn format_time(at: Timestamp) -> String {
    let seconds = at.0 / 1_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

fn subject_name(subject: &ViolationSubject) -> String {
    let name = |person: &Person| person.name.clone();
    match subject {
        ViolationSubject::Person(person) => name(person),
        ViolationSubject::PersonOn(person, device) => format!("{} on {}", name(person), device.0),
        ViolationSubject::Group(group) => format!("group {group}"),
        ViolationSubject::GroupOn(group, device) => format!("group {group} on {}", device.0),
        ViolationSubject::Device(device) => device.0.clone(),
        ViolationSubject::Job(job) => format!("{} ({})", job.owner.name, job.shown),
        ViolationSubject::Run(run) => format!("{} on {}", run.pid, run.device.0),
    }
}

fn format_measurement(kind: RuleKind, measured: Measurement) -> String {
    let Measurement { value, limit } = measured;
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let minutes = |ms: u64| format!("{}:{:02} min", ms / 60_000, ms / 1_000 % 60);
    match kind {
        RuleKind::Memory
        | RuleKind::TotalMemory
        | RuleKind::ProcessMemory
        | RuleKind::ReservedMemory
        | RuleKind::Growth => format!("{} of {}", gib(value), gib(limit)),
        RuleKind::Duration | RuleKind::Idle | RuleKind::Runaway => {
            format!("{} of {}", minutes(value), minutes(limit))
        }
        RuleKind::Utilization
        | RuleKind::TotalUtilization
        | RuleKind::GpuUtilization
        | RuleKind::Waste => format!("{value} % of {limit} %"),
        RuleKind::Rogue => {
            let name = |level| Risk::from_level(level).map_or("?", Risk::name);
            format!("{}, from {} on", name(value), name(limit))
        }
        RuleKind::Processes
        | RuleKind::TotalProcesses
        | RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours => format!("{value} of {limit}"),
    }
}
