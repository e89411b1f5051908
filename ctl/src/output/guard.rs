//! The guard, for people: its status, its decisions, changes of its rules, and what rules would
//! have done.

mod edit_effect;
mod edit_statement;
mod own_jobs;
mod process_rows;
mod replay;
pub(crate) mod rules;
mod violation_text;
mod violations;

use edit_effect::effect_lines;
pub(crate) use edit_effect::{EditEffect, PreviousState};
pub(crate) use edit_statement::edit_statement;
pub(crate) use own_jobs::own_job_lines;
pub(super) use process_rows::rows as ruled;
pub(crate) use replay::{MilderPolicies, replay_lines, test_lines};
pub(super) use violation_text::{measured_text, reachability, step_text, subject_name};
pub(crate) use violations::violations;

use self::rules::{EditView, is_no_change};
use super::markers::WOULD_HAVE_ENDED;
use super::status::labelled;
use super::style::OutputStyle;
use super::text::{Line, Tone, escaped, wrapped_lines};
use super::value::{clock, counted, future_time};
use crate::connect::Mode;
use gpukill_policy::guard::rules::description::PolicyDescription;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardReport, MAX_IDLE_SERVICES, OpenViolation, RuleKind, RulesDoubt,
    SnoozedRule,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::status::DaemonStatus;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;

/// Maximum number of rules and of violations in the status.
const MAX_STATUS_RULES: usize = 10;
const MAX_STATUS_VIOLATIONS: usize = 5;

/// The lines of `gpukillctl guard status`: with the policies in force, as far as the caller may
/// read them, and with the open violations.
pub(crate) fn status_lines(
    report: &GuardReport,
    policies: &[PolicyDescription],
    open: &[OpenViolation],
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut rows = vec![
        ("guard", full_mode_text(report), Tone::Plain),
        ("rules", rules_text(report), Tone::Plain),
    ];
    let texts = policies
        .iter()
        .map(|policy| escaped(&policy.text, style.symbols));
    let texts = limit_rows(texts, MAX_STATUS_RULES, "gpukillctl guard config");
    rows.extend(texts.into_iter().map(|text| ("", text, Tone::Plain)));
    let mut open: Vec<&OpenViolation> = open
        .iter()
        .filter(|open| open.not_broken_since.is_none())
        .collect();
    // Jobs that end soon come first.
    open.sort_indirect_by_key(|open| {
        let is_over = open.deadline.is_none_or(|deadline| deadline <= now);
        (is_over, open.deadline)
    });
    let texts = open
        .iter()
        .map(|open| open_violation_text(open, now, style));
    let texts = limit_rows(texts, MAX_STATUS_VIOLATIONS, "gpukillctl guard violations");
    let labels = std::iter::once("open").chain(std::iter::repeat(""));
    rows.extend(
        labels
            .zip(texts)
            .map(|(label, text)| (label, text, Tone::Doubtful)),
    );
    let last_sample = match report.evaluated_at {
        None => "none evaluated yet".to_owned(),
        Some(at) => format!("last evaluated at {}", clock(at, now, style)),
    };
    let dropped = match report.dropped {
        0 => String::new(),
        dropped => format!(", {dropped} skipped because they came too fast"),
    };
    rows.push(("sample", format!("{last_sample}{dropped}"), Tone::Plain));
    if report.overflow > 0 {
        let overflow = report.overflow;
        let what = format!(
            "there is no room for {overflow} more violations and findings: nobody is warned or ended for \
             them; write fewer rules"
        );
        rows.push(("beyond", what, Tone::Doubtful));
    }
    if let Some(at) = report.tripped_at {
        rows.push((
            "stopped",
            stopped_text(
                (report.mode, report.is_trip_simulated),
                &clock(at, now, style),
                NoticePlacement::Status,
            ),
            Tone::Broken,
        ));
    }
    if let Some(doubt) = &report.doubt {
        rows.push(("doubt", doubt_text(report.mode, doubt), Tone::Broken));
    }
    rows.push(("today", today_text(report), Tone::Plain));
    let services = by_service(&report.idle_services);
    for (of_service, name) in services.iter().zip(SERVICE_LABELS) {
        let text = idle_service_text(of_service, now, style);
        rows.push((name, text, Tone::Plain));
    }
    for mistake in &report.mistakes {
        rows.push(("mistake", mistake.clone(), Tone::Broken));
    }
    if report.is_file_changed == Some(true) {
        let file = &report.file;
        let what = format!("{file} has changed since it was read: systemctl reload gpukilld");
        rows.push(("file", what, Tone::Doubtful));
    }
    rows.into_iter()
        .flat_map(|(name, what, tone)| labelled(name, &what, tone, 10, style))
        .collect()
}

/// The first texts, and how many more there are.
fn limit_rows(
    texts: impl ExactSizeIterator<Item = String>,
    most: usize,
    command: &str,
) -> Vec<String> {
    let more = texts.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("{more} more: {command}"));
    texts.take(most).chain(more).collect()
}

/// `bob on GPU 5: default: idle, 51002 python, would end 14:37`
fn open_violation_text(open: &OpenViolation, now: Timestamp, style: &OutputStyle) -> String {
    let evidence = &open.evidence;
    let who = subject_name(&open.subject, evidence);
    let mut text = format!(
        "{who} on GPU {}: ",
        violation_text::device_indices(&evidence.runs)
    );
    text.push_str(&open.rule.to_string());
    let processes = violation_text::processes(&evidence.runs, evidence.count);
    let end = violations::end_text(open, now, style);
    let is_shown = |part: &&String| !part.is_empty() && *part != style.symbols.placeholder();
    for part in [processes, end].iter().filter(is_shown) {
        text.push_str(&format!(", {part}"));
    }
    escaped(&text, style.symbols)
}

pub(super) fn status_line(report: &GuardReport) -> String {
    let rules = match report.rules.total() {
        0 => "no rules, so nobody is limited".to_owned(),
        several => counted(several as usize, "rule"),
    };
    let mut open = counted(report.open as usize, "open violation");
    if report.would_have_ended > 0 {
        let jobs = counted(report.would_have_ended as usize, "job");
        open = format!("{open}, {jobs} {WOULD_HAVE_ENDED}");
    }
    let mode = match report.tripped_at {
        Some(_) if report.mode > GuardMode::DryRun => {
            "stopped: see gpukillctl guard status".to_owned()
        }
        Some(_) | None => mode_text(report),
    };
    let today = today_text(report);
    format!("{mode}; {rules}, {open}; {today}")
}

/// The note for a caller who does not see other users: what is hidden is not zero.
pub(crate) fn hidden_note(status: &DaemonStatus) -> Option<Line> {
    let is_hidden = status.counters.decisions == Reading::Withheld;
    is_hidden.then(|| Line::with_tone(HIDDEN_NOTE, Tone::Faint))
}

/// Shown where other users are hidden from the caller.
const HIDDEN_NOTE: &str = "only your own violations: those of other users are hidden";

/// Rules on behaviour concern unusually many people, and the consequence.
fn doubt_text(mode: GuardMode, doubt: &RulesDoubt) -> String {
    let RulesDoubt { people, of, .. } = doubt;
    let then = match (mode, doubt.only_warn) {
        (GuardMode::Disabled | GuardMode::DryRun, _) => {
            "gpukillctl guard soft or guard enforce confirms them"
        }
        (GuardMode::Soft | GuardMode::Enforce, true) => {
            "they only warn until an admin confirms them with gpukillctl guard soft or guard \
            enforce"
        }
        (GuardMode::Soft | GuardMode::Enforce, false) => {
            "if they fit, confirm them with gpukillctl guard soft or guard enforce"
        }
    };
    format!(
        "the idle, waste, runaway and growth rules affected {people} of {of} users within a day, \
         and may not fit this host; {then}"
    )
}

/// Where a text about the guard appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoticePlacement {
    Status,
    /// Above the open violations.
    Violations,
}

/// The guard has stopped ending jobs, and how to resume.
fn stopped_text(
    (mode, is_simulated): (GuardMode, bool),
    since: &str,
    placement: NoticePlacement,
) -> String {
    let how_to_resume = match placement {
        NoticePlacement::Status => "check gpukillctl guard violations, then resume",
        NoticePlacement::Violations => "an admin resumes it",
    };
    match mode {
        GuardMode::Disabled | GuardMode::DryRun if !is_simulated => format!(
            "it stopped at {since}, to stay within \
             enforcement.max_ended_per_10_minutes"
        ),
        GuardMode::Disabled | GuardMode::DryRun => format!(
            "it would have stopped at {since}, to stay within \
             enforcement.max_ended_per_10_minutes"
        ),
        GuardMode::Soft | GuardMode::Enforce => format!(
            "it ends no job since {since}, to stay within \
             enforcement.max_ended_per_10_minutes: {how_to_resume} with gpukillctl guard {}",
            mode.name()
        ),
    }
}

/// Only the first of several idle services has a label.
const SERVICE_LABELS: [&str; MAX_IDLE_SERVICES] = ["services", "", "", "", "", "", "", ""];

/// The violations of each service: one service may break several rules.
fn by_service(all: &[OpenViolation]) -> Vec<Vec<&OpenViolation>> {
    let mut services: Vec<Vec<&OpenViolation>> = Vec::new();
    for open in all {
        let is_of_it = |it: &&mut Vec<&OpenViolation>| {
            it.first()
                .is_some_and(|first| first.subject == open.subject)
        };
        match services.iter_mut().find(is_of_it) {
            Some(of_service) => of_service.push(open),
            None => services.push(vec![open]),
        }
    }
    services
}

/// `alice's vllm.service on GPU 0: idle since 06:37:00, port 8000, no client; default: idle, for
/// idleness only warned; rule waste: waste, for waste only warned`
fn idle_service_text(of_service: &[&OpenViolation], now: Timestamp, style: &OutputStyle) -> String {
    let Some(first) = of_service.first() else {
        return String::new();
    };
    let evidence = &first.evidence;
    let what = match first.rule.kind {
        RuleKind::Waste => "almost idle",
        _ => "idle",
    };
    let since = clock(evidence.since, now, style);
    let gpus = violation_text::device_indices(&evidence.runs);
    let reached = evidence
        .runs
        .first()
        .and_then(violation_text::evidence_reachability);
    let reached = reached.map_or_else(String::new, |reached| format!(", {reached}"));
    let mut text = format!(
        "{} on GPU {gpus}: {what} since {since}{reached}",
        first.subject
    );
    for open in of_service {
        text.push_str(&format!("; {}", open.rule));
        let end = violations::end_text(open, now, style);
        if end != style.symbols.placeholder() {
            text.push_str(&format!(", {end}"));
        }
    }
    escaped(&text, style.symbols)
}

fn mode_text(report: &GuardReport) -> String {
    match report.mode {
        GuardMode::DryRun => format!(
            "dry-run: records what {} would do, and warns and ends nobody",
            report.armed_mode.name()
        ),
        GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce => report.mode.name().to_owned(),
    }
}

fn full_mode_text(report: &GuardReport) -> String {
    match report.mode {
        // The simulated mode says more.
        GuardMode::DryRun => mode_text(report),
        stopped @ (GuardMode::Soft | GuardMode::Enforce) if report.tripped_at.is_some() => {
            format!(
                "stopped: it ends nobody, though its mode is {}",
                stopped.name()
            )
        }
        GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce => {
            format!("{}: {}", report.mode.name(), mode_effect(report.mode))
        }
    }
}

const fn mode_effect(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Disabled => "nothing is evaluated",
        GuardMode::DryRun => "nobody is warned or ended",
        GuardMode::Soft => "it warns, and ends a job when the grace is over",
        GuardMode::Enforce => {
            "it ends jobs without a warning; for idleness and waste it warns first"
        }
    }
}

fn rules_text(report: &GuardReport) -> String {
    let rules = counted(report.rules.total() as usize, "rule");
    match &report.revision {
        None => format!("there is no {}: nobody is limited", report.file),
        Some(_) => format!("{rules} in {}", report.file),
    }
}

fn today_text(report: &GuardReport) -> String {
    let (warned, ended) = (report.warned_today, report.ended_today);
    let done = format!(
        "warned of {} and ended {} today",
        count_violations(warned),
        count_jobs(ended)
    );
    let would = (report.simulated_warned_today, report.simulated_ended_today);
    let simulated = format!(
        "would have warned of {} and ended {}",
        count_violations(would.0),
        count_jobs(would.1)
    );
    match (report.mode, (warned, ended) == (0, 0), would == (0, 0)) {
        (GuardMode::Disabled, true, true) => "nothing is evaluated".to_owned(),
        (GuardMode::DryRun, true, _) => format!("{simulated} today"),
        (_, _, true) => done,
        (_, _, false) => format!("{done}; in dry run it {simulated}"),
    }
}

fn count_violations(count: u32) -> String {
    counted(count as usize, "violation")
}

fn count_jobs(count: u32) -> String {
    counted(count as usize, "job")
}

/// How long and until when nothing is ended, a sentence for each rule.
pub(crate) fn snooze_lines(
    snoozed: &[SnoozedRule],
    mode: Mode,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let is_dry = |rule: &SnoozedRule| rule.mode <= GuardMode::DryRun;
    let is_all_dry = snoozed.iter().all(is_dry);
    let texts = snoozed.iter().map(|snooze| {
        let until = future_time(snooze.until, now, style);
        let rule = escaped(&snooze.rule.to_string(), style.symbols);
        let left = match snooze.left {
            0 => "no snooze left".to_owned(),
            several => format!("{} left", counted(several as usize, "snooze")),
        };
        // To the next minute: the answer took a moment.
        let length = format_duration(snooze.until.plus_seconds(30).since(now));
        match (mode, is_dry(snooze)) {
            (_, true) if is_all_dry => format!(
                "{rule}: nobody is ended for it (dry run): no more time is needed, and no snooze \
                 is used up"
            ),
            (_, true) => format!("{rule}: nobody is ended for it (dry run)"),
            (Mode::DryRun, false) => {
                format!("{rule}: nothing would be ended for {length}, until {until}; {left}")
            }
            (Mode::Apply, false) => {
                format!("{rule}: nothing is ended for {length}, until {until}; {left}")
            }
        }
    });
    texts
        .flat_map(|text| wrapped_lines(&text, Tone::Plain, style))
        .collect()
}

/// The changes of an edit, made or planned, and its effect on jobs.
pub(crate) fn edit_lines(
    report: &EditReport,
    view: EditView<'_>,
    effect: Option<&EditEffect>,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    // A stopped guard ends jobs again, which is a change.
    let is_resumed = effect.is_some_and(|effect| effect.previous == PreviousState::Stopped);
    let mut lines = match is_resumed && is_no_change(report) {
        true => Vec::new(),
        false => rules::edit_lines(report, view, style),
    };
    lines.extend(effect.map_or_else(Vec::new, |effect| {
        effect_lines(effect, view.doing, now, style)
    }));
    lines
}
