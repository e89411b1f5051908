//! What the guard says of one process: whom rules mean by it, a line for each rule that it
//! breaks, and one for each limit that holds for its owner.

use super::words::{amount, context, ending, measured, only_warned, spares};
use crate::output::look::Look;
use crate::output::mark::WOULD_HAVE_ENDED;
use crate::output::value::{clock, minute, reading};
use gpukill_proto::guard::{
    GuardMode, HeldTo, JudgedAs, Milder, OpenViolation, RuleKind, RuleName, RuleSource, Ruled,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;

/// Each with its name, which the first of several has.
pub(in crate::output) fn rows(
    ruled: &Reading<Ruled>,
    now: Timestamp,
    look: &Look,
) -> Vec<(String, String)> {
    let known = match ruled {
        Reading::Value(ruled) | Reading::Stale(ruled, _) => ruled,
        // No driver lists it, so that it is not judged.
        Reading::Unsupported => return Vec::new(),
        Reading::Failed(_) | Reading::Withheld => {
            let why = reading(ruled, |_| String::new()).text;
            return vec![("rules".to_owned(), why)];
        }
    };
    let gone = known.would_have_ended.iter();
    let because = match (known.is_stopped, known.mode) {
        (true, _) => "the guard has stopped",
        (false, GuardMode::Soft | GuardMode::Enforce) => "its rule or own policy is in dry run",
        (false, GuardMode::Disabled | GuardMode::DryRun) => "this is a dry run",
    };
    let gone = gone.map(|open| violation(open, Is::Gone(because), now, look));
    let open = known.violations.iter();
    let open = open.map(|open| violation(open, Is::GoingOn, now, look));
    let violations: Vec<String> = gone.chain(open).collect();
    let protected = known.protected.as_ref();
    let protected = protected.map(|why| format!("none: no rule is about it, as {why}"));
    let limits = known.limits.iter().map(limit);
    let limits: Vec<String> = protected.into_iter().chain(limits).collect();
    let person = judged_as(&known.judged_as).into_iter().collect();
    [("person", person), ("rule", violations), ("limits", limits)]
        .into_iter()
        .flat_map(|(name, lines)| {
            let names = std::iter::once(name).chain(std::iter::repeat(""));
            names.map(str::to_owned).zip(lines)
        })
        .collect()
}

/// Whom rules mean by it, where that is not its owner.
fn judged_as(judged_as: &JudgedAs) -> Option<String> {
    match judged_as {
        JudgedAs::Owner => None,
        JudgedAs::Login(person) => Some(format!(
            "{}: rules mean who logged in to start it, not whom it runs as",
            person.name
        )),
        JudgedAs::Unknown => {
            Some("not known: rules mean who logged in to start it, and nobody knows who".to_owned())
        }
    }
}

/// What a violation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    GoingOn,
    /// Its job would have been ended for it, and was not, for this reason.
    Gone(&'static str),
}

/// `default: idle · 8h 0m of 2h 0m since 06:37:00, would be warned 06:37:00, would end
/// 14:37`
fn violation(open: &OpenViolation, is: Is, now: Timestamp, look: &Look) -> String {
    let evidence = &open.evidence;
    let would = match open.mode {
        GuardMode::Disabled | GuardMode::DryRun => "would be ",
        GuardMode::Soft | GuardMode::Enforce => "",
    };
    let mut parts = vec![format!(
        "{} since {}",
        measured(open.rule.kind, evidence),
        clock(evidence.since, now, look)
    )];
    if let Some(at) = open.warned_at {
        let times = match open.warnings {
            0 | 1 => String::new(),
            several => format!(", {several} times by now"),
        };
        parts.push(format!("{would}warned {}{times}", clock(at, now, look)));
    }
    let is_of_use = matches!(
        open.rule.kind,
        RuleKind::Idle | RuleKind::Waste | RuleKind::Duration
    );
    parts.extend(context(evidence).filter(|_| is_of_use));
    if open.evidence.is_spared_service {
        parts.push(format!("service: {}", only_warned(open.rule.kind)));
    }
    if let Some(at) = open.not_broken_since {
        parts.push(format!("not broken since {}", clock(at, now, look)));
    } else if let Some(at) = open.ended_at {
        let at = clock(at, now, look);
        parts.push(match (is, would.is_empty()) {
            (Is::Gone(because), _) => format!("{WOULD_HAVE_ENDED} {at}: it runs on as {because}"),
            // What is explained is there still: the end of a job takes a while, and it may
            // be another one.
            (Is::GoingOn, true) => format!("the end of a job began {at}"),
            (Is::GoingOn, false) => format!("a job {would}ended {at}"),
        });
    } else if let Some(own) = open.own_policy {
        parts.push(match own {
            Milder::Warned => spares(own).to_owned(),
            Milder::Rehearsed => "nobody is warned or ended: own policy".to_owned(),
        });
    } else if let Some(deadline) = open.deadline.filter(|deadline| *deadline > now) {
        let ending = ending(open);
        parts.push(format!(
            "{ending} {} if it goes on",
            minute(deadline, now, look)
        ));
        parts.extend(snooze(open));
    }
    let dot = look.symbols.dot();
    let mut text = format!("{}{dot}{}", open.rule, parts.join(", "));
    if let Some(message) = &open.message {
        text = format!("{text}{dot}{message}");
    }
    text
}

/// `1 snooze left: gpukillctl guard snooze 51002`
fn snooze(open: &OpenViolation) -> Option<String> {
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
fn limit(held: &HeldTo) -> String {
    let HeldTo {
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
    let mut text = format!("{kind} {} by {}", amount(rule.kind, *limit), rule.source);
    let replaced: Vec<String> = replaces.iter().map(whose).collect();
    if !replaced.is_empty() {
        text.push_str(&format!("; replaces {}", replaced.join(", ")));
    }
    text
}

fn whose((rule, limit): &(RuleName, u64)) -> String {
    let limit = amount(rule.kind, *limit);
    match &rule.source {
        RuleSource::Default => format!("the default's {limit}"),
        source @ (RuleSource::User(_)
        | RuleSource::Group(_)
        | RuleSource::Gpu(_)
        | RuleSource::Time(_)
        | RuleSource::Rule(_)) => format!("{source}'s {limit}"),
    }
}
