//! The guard's view of one process: a line for each rule that it breaks, and a line for each
//! limit of its owner.

use super::violation_text::{
    amount_text, context_text, ending_text, measured_text, own_policy_text, warn_only_text,
};
use crate::output::markers::WOULD_HAVE_ENDED;
use crate::output::style::OutputStyle;
use crate::output::value::{clock, future_time, reading};
use gpukill_proto::guard::{
    AppliedLimit, GuardMode, MilderPolicy, OpenViolation, ProcessGuardStatus, RuleKind, RuleName,
    RuleSource, UnfinishedEnd,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;

/// The rows with their labels; only the first of several rows has the label.
pub(in crate::output) fn rows(
    guard_status: &Reading<ProcessGuardStatus>,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<(String, String)> {
    let known = match guard_status {
        Reading::Value(guard_status) | Reading::Stale(guard_status, _) => guard_status,
        // No driver lists the process, so it is not evaluated.
        Reading::Unsupported => return Vec::new(),
        Reading::Failed(_) | Reading::Withheld => {
            let why = reading(guard_status, |_| String::new()).text;
            return vec![("rules".to_owned(), why)];
        }
    };
    let gone = known.would_have_ended.iter();
    let because = match (known.is_stopped, known.mode) {
        (true, _) => "the guard has stopped",
        (false, GuardMode::Soft | GuardMode::Enforce) => "its rule or own policy is in dry run",
        (false, GuardMode::Disabled | GuardMode::DryRun) => "this is a dry run",
    };
    let gone =
        gone.map(|open| violation_text(open, ViolationStatus::SimulatedEnd(because), now, style));
    let open = known.violations.iter();
    let open = open.map(|open| violation_text(open, ViolationStatus::Open, now, style));
    let violations: Vec<String> = gone.chain(open).collect();
    let protected = known.protected.as_ref();
    let protected = protected.map(|why| format!("none: no rule applies, because {why}"));
    let limits = known.limits.iter().map(limit_text);
    let limits: Vec<String> = protected.into_iter().chain(limits).collect();
    [("rule", violations), ("limits", limits)]
        .into_iter()
        .flat_map(|(name, lines)| {
            let names = std::iter::once(name).chain(std::iter::repeat(""));
            names.map(str::to_owned).zip(lines)
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ViolationStatus {
    Open,
    /// Its job would have been ended, and was not for this reason.
    SimulatedEnd(&'static str),
}

/// `default: idle · 8h 0m of 2h 0m since 06:37:00, would be warned 06:37:00, would end 14:37`
fn violation_text(
    open: &OpenViolation,
    is: ViolationStatus,
    now: Timestamp,
    style: &OutputStyle,
) -> String {
    let evidence = &open.evidence;
    let would = match open.mode {
        GuardMode::Disabled | GuardMode::DryRun => "would be ",
        GuardMode::Soft | GuardMode::Enforce => "",
    };
    let mut parts = vec![format!(
        "{} since {}",
        measured_text(open.rule.kind, evidence),
        clock(evidence.since, now, style)
    )];
    if let Some(at) = open.warned_at {
        let times = match open.warnings {
            0 | 1 => String::new(),
            several => format!(", {several} times by now"),
        };
        parts.push(format!("{would}warned {}{times}", clock(at, now, style)));
    }
    let is_of_use = matches!(
        open.rule.kind,
        RuleKind::Idle | RuleKind::Waste | RuleKind::Duration
    );
    parts.extend(context_text(evidence).filter(|_| is_of_use));
    if open.evidence.is_service_only_warned {
        parts.push(format!("service: {}", warn_only_text(open.rule.kind)));
    }
    if let Some(at) = open.not_broken_since {
        parts.push(format!("not broken since {}", clock(at, now, style)));
    } else if let Some(at) = open.ended_at {
        let at = clock(at, now, style);
        parts.push(match is {
            ViolationStatus::SimulatedEnd(because) => {
                format!("{WOULD_HAVE_ENDED} {at}: it runs on as {because}")
            }
            ViolationStatus::Open => format!("a job {would}ended {at}"),
        });
    } else if let Some(unfinished) = open.unfinished_end {
        parts.push(match unfinished {
            UnfinishedEnd::UnderWay(since) => {
                format!("the end of a job began {}", clock(since, now, style))
            }
            UnfinishedEnd::Survived(at) => {
                format!("a job survived its signals {}", clock(at, now, style))
            }
        });
    } else if let Some(own) = open.own_policy {
        parts.push(match own {
            MilderPolicy::Warned => own_policy_text(own).to_owned(),
            MilderPolicy::DryRun => "nobody is warned or ended: own policy".to_owned(),
        });
    } else if let Some(deadline) = open.deadline.filter(|deadline| *deadline > now) {
        let ending = ending_text(open);
        parts.push(format!(
            "{ending} {} if it goes on",
            future_time(deadline, now, style)
        ));
        // A dry run ends no job, so there is nothing to postpone.
        parts.extend(snooze_text(open).filter(|_| open.mode > GuardMode::DryRun));
    }
    let dot = style.symbols.separator();
    let mut text = format!("{}{dot}{}", open.rule, parts.join(", "));
    if let Some(message) = &open.message {
        text = format!("{text}{dot}{message}");
    }
    text
}

/// `1 snooze left: gpukillctl guard snooze 51002`
fn snooze_text(open: &OpenViolation) -> Option<String> {
    let left = open.readers.iter().map(|it| it.snoozes_left).max()?;
    let pid = open.evidence.runs.first()?.run.pid;
    match left {
        0 => Some("no snooze left".to_owned()),
        1 => Some(format!("1 snooze left: gpukillctl guard snooze {pid}")),
        left => Some(format!(
            "{left} snoozes left: gpukillctl guard snooze {pid}"
        )),
    }
}

/// `memory 40.0G by user alice; replaces group ml's 80.0G, the default's 2.0G`
fn limit_text(held: &AppliedLimit) -> String {
    let AppliedLimit {
        rule,
        limit,
        replaces,
    } = held;
    let kind = rule.kind.name();
    let Some(limit) = limit else {
        return format!(
            "{kind}: whether the limit of {} holds is not known",
            rule.source
        );
    };
    let mut text = format!(
        "{kind} {} by {}",
        amount_text(rule.kind, *limit),
        rule.source
    );
    let replaced: Vec<String> = replaces.iter().map(replaced_limit).collect();
    if !replaced.is_empty() {
        text.push_str(&format!("; replaces {}", replaced.join(", ")));
    }
    text
}

fn replaced_limit((rule, limit): &(RuleName, u64)) -> String {
    let limit = amount_text(rule.kind, *limit);
    match &rule.source {
        RuleSource::Default => format!("the default's {limit}"),
        source @ (RuleSource::User(_)
        | RuleSource::Group(_)
        | RuleSource::Gpu(_)
        | RuleSource::Time(_)
        | RuleSource::Rule(_)) => format!("{source}'s {limit}"),
    }
}
