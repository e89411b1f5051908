//! The guard, for people: how it stands, what it decided, what changed in its rules,
//! and what rules would have done.

mod decided;

mod own;

mod replayed;

mod ruled;

mod turned;

mod words;

pub(crate) use decided::violations;
pub(crate) use own::own_jobs;
pub(crate) use replayed::{Spared, replay, tested};
pub(super) use ruled::rows as ruled;
use turned::turned;
pub(crate) use turned::{Turn, Was};
pub(super) use words::reached;

use super::line::{Line, Tone, shown, wrap};
use super::look::Look;
use super::mark::WOULD_HAVE_ENDED;
use super::rules::{self, is_nothing};
use super::status::labelled;
use super::value::{clock, counted, minute};
use crate::connect::Doing;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardReport, MAX_IDLE_SERVICES, OpenViolation, RuleKind, RulesDoubt,
    Snoozed,
};
use gpukill_proto::units::Timestamp;

/// The lines of `gpukillctl guard status`.
pub(crate) fn status(report: &GuardReport, now: Timestamp, look: &Look) -> Vec<Line> {
    let mut rows = vec![
        ("guard", mode_in_full(report), Tone::Plain),
        ("rules", written(report), Tone::Plain),
    ];
    let judged = match report.judged_at {
        None => "no sample yet".to_owned(),
        Some(at) => format!("last sample of {}", clock(at, now, look)),
    };
    let dropped = match report.dropped {
        0 => String::new(),
        dropped => format!(", {dropped} came too fast and were not"),
    };
    rows.push(("judged", format!("{judged}{dropped}"), Tone::Plain));
    if report.beyond > 0 {
        let beyond = report.beyond;
        let what = format!(
            "there is no room for {beyond} more violations and findings: nobody is warned or ended for \
             them; write fewer rules"
        );
        rows.push(("beyond", what, Tone::Doubtful));
    }
    if let Some(at) = report.tripped_at {
        rows.push((
            "stopped",
            stopped(
                (report.mode, report.is_trip_simulated),
                &clock(at, now, look),
                Said::OfTheGuard,
            ),
            Tone::Broken,
        ));
    }
    if let Some(doubt) = &report.doubt {
        rows.push(("doubt", doubted(report.mode, doubt), Tone::Broken));
    }
    rows.push(("today", today(report), Tone::Plain));
    for (open, name) in report.idle_services.iter().zip(SERVICES) {
        rows.push((name, idle_service(open, now, look), Tone::Plain));
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
        .flat_map(|(name, what, tone)| labelled(name, &what, tone, 10, look))
        .collect()
}

/// One line for `status`.
pub(super) fn brief(report: &GuardReport) -> String {
    let rules = match report.rules.all() {
        0 => "no rules, so that nobody is limited".to_owned(),
        several => counted(several as usize, "rule"),
    };
    let mut open = counted(report.open as usize, "open violation");
    if report.would_have_ended > 0 {
        let jobs = counted(report.would_have_ended as usize, "job");
        open = format!("{open}, {jobs} {WOULD_HAVE_ENDED}");
    }
    let stopped = match report.tripped_at {
        Some(_) if report.mode > GuardMode::DryRun => ", but stopped: see gpukillctl guard status",
        Some(_) | None => "",
    };
    let (mode, today) = (mode(report), today(report));
    format!("{mode}{stopped}; {rules}, {open}; {today}")
}

/// That rules on behaviour concern many people, and what comes of that.
fn doubted(mode: GuardMode, doubt: &RulesDoubt) -> String {
    let RulesDoubt { people, of, .. } = doubt;
    let then = match (mode, doubt.only_warn) {
        (GuardMode::Disabled | GuardMode::DryRun, _) => {
            "gpukillctl guard soft or guard enforce confirms them"
        }
        (GuardMode::Soft | GuardMode::Enforce, true) => {
            "they only warn until an admin confirms them with gpukillctl guard soft or guard enforce"
        }
        (GuardMode::Soft | GuardMode::Enforce, false) => {
            "if they do fit, confirm them with gpukillctl guard soft or guard enforce"
        }
    };
    format!(
        "the idle, waste, runaway and growth rules concerned {people} of {of} people within a day, \
         and may not fit this box; {then}"
    )
}

/// Where something is said of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    OfTheGuard,
    /// Above the violations that go on.
    AmongViolations,
}

/// That it ends nobody any more, and how it goes on.
fn stopped((mode, is_simulated): (GuardMode, bool), since: &str, said: Said) -> String {
    let look = match said {
        Said::OfTheGuard => "look at gpukillctl guard violations, and go on",
        Said::AmongViolations => "an admin has it go on",
    };
    match mode {
        GuardMode::Disabled | GuardMode::DryRun if !is_simulated => format!(
            "it stopped at {since}, before one more job than \
             enforcement.max_ended_per_10_minutes"
        ),
        GuardMode::Disabled | GuardMode::DryRun => format!(
            "it would have stopped at {since}, before one more job than \
             enforcement.max_ended_per_10_minutes"
        ),
        GuardMode::Soft | GuardMode::Enforce => format!(
            "it ends nobody since {since}, before one more job than \
             enforcement.max_ended_per_10_minutes: {look} with gpukillctl guard {}",
            mode.name()
        ),
    }
}

/// The first of several idle services has a name.
const SERVICES: [&str; MAX_IDLE_SERVICES] = ["services", "", "", "", "", "", "", ""];

/// `alice's vllm.service on GPU 0: idle since 06:37:00, port 8000, no client; for idleness
/// only warned`
fn idle_service(open: &OpenViolation, now: Timestamp, look: &Look) -> String {
    let evidence = &open.evidence;
    let what = match open.rule.kind {
        RuleKind::Waste => "hardly works",
        _ => "idle",
    };
    let since = clock(evidence.since, now, look);
    let gpus = words::gpus(&evidence.runs);
    let reached = evidence.runs.first().and_then(words::reached_as);
    let reached = reached.map_or_else(String::new, |reached| format!(", {reached}"));
    let end = decided::end(open, now, look);
    let end = match end == look.symbols.none() {
        true => String::new(),
        false => format!("; {end}"),
    };
    shown(
        &format!(
            "{} on GPU {gpus}: {what} since {since}{reached}{end}",
            open.subject
        ),
        look.symbols,
    )
}

fn mode(report: &GuardReport) -> String {
    match report.mode {
        GuardMode::DryRun => format!(
            "dry-run: records what {} would do, and warns and ends nobody",
            report.rehearses.name()
        ),
        GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce => report.mode.name().to_owned(),
    }
}

fn mode_in_full(report: &GuardReport) -> String {
    match report.mode {
        // What it rehearses says more.
        GuardMode::DryRun => mode(report),
        stopped @ (GuardMode::Soft | GuardMode::Enforce) if report.tripped_at.is_some() => {
            format!("{}, stopped: it ends nobody", stopped.name())
        }
        GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce => {
            format!("{}: {}", report.mode.name(), does(report.mode))
        }
    }
}

/// What the guard does in a mode.
const fn does(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Disabled => "nothing is judged",
        GuardMode::DryRun => "nobody is warned or ended",
        GuardMode::Soft => "it warns, and ends a job when the grace is over",
        GuardMode::Enforce => {
            "it ends jobs without a warning; for idleness and waste it warns first"
        }
    }
}

fn written(report: &GuardReport) -> String {
    let rules = counted(report.rules.all() as usize, "rule");
    match &report.revision {
        None => format!("there is no {}: nobody is limited", report.file),
        Some(revision) => format!("{rules} in {}, revision {}", report.file, revision.0),
    }
}

fn today(report: &GuardReport) -> String {
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
        (GuardMode::Disabled, true, true) => "nothing is judged".to_owned(),
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

/// Until when nothing is ended, a sentence for each rule.
pub(crate) fn snoozed(snoozed: &[Snoozed], doing: Doing, now: Timestamp, look: &Look) -> Vec<Line> {
    let is_dry = |it: &Snoozed| it.mode <= GuardMode::DryRun;
    let is_all_dry = snoozed.iter().all(is_dry);
    let texts = snoozed.iter().map(|it| {
        let until = minute(it.until, now, look);
        let rule = shown(&it.rule.to_string(), look.symbols);
        let left = match it.left {
            0 => "this was the last time".to_owned(),
            several => format!("{several} left"),
        };
        match (doing, is_dry(it)) {
            (_, true) if is_all_dry => format!(
                "{rule}: nobody is ended for it (dry run): no more time is needed, and no snooze \
                 is used up"
            ),
            (_, true) => format!("{rule}: nobody is ended for it (dry run)"),
            (Doing::Saying, false) => {
                format!("{rule}: nothing would be ended before {until}, {left}")
            }
            (Doing::Doing, false) => format!("{rule}: nothing is ended before {until}, {left}"),
        }
    });
    let lines = texts.flat_map(|text| wrap(&text, 0, 2, look.width));
    lines.map(Line::plain).collect()
}

/// What an edit changed, or would; and whom that affects.
pub(crate) fn edited(
    report: &EditReport,
    doing: Doing,
    turn: Option<&Turn>,
    now: Timestamp,
    look: &Look,
) -> Vec<Line> {
    let turned = turn.map(|turn| turned(turn, doing, now, look));
    let mut lines = match turn.map(|turn| turn.was) {
        // That it ends jobs again is a change.
        Some(Was::Stopped) if is_nothing(report) => Vec::new(),
        Some(
            Was::Stopped
            | Was::Other
            | Was::Same
            | Was::Edited
            | Was::EditedMode
            | Was::StaysStopped,
        )
        | None => rules::edited(report, doing, look),
    };
    lines.extend(turned.into_iter().flatten());
    lines
}
