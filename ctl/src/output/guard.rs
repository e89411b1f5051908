//! The guard, for people: how it stands, what it decided, what changed in its rules,
//! and what rules would have done.

mod decided;

mod replayed;

mod ruled;

mod turned;

mod words;

pub(crate) use decided::violations;
pub(crate) use replayed::{Spared, replay, tested};
pub(super) use ruled::rows as ruled;
use turned::turned;
pub(crate) use turned::{Turn, Was};

use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, is_terminal};
use super::mark::WOULD_HAVE_ENDED;
use super::print;
use super::status::labelled;
use super::value::{clock, counted, minute};
use crate::connect::Doing;
use crate::exit::Failure;
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::edit::{Mistake, Warning};
use gpukill_proto::guard::{EditReport, GuardMode, GuardReport, Snoozed};
use gpukill_proto::text::visible;
use gpukill_proto::units::Timestamp;

/// The lines of `gpukillctl guard status`.
pub(crate) fn status(report: &GuardReport, now: Timestamp, look: &Look) -> Vec<Line> {
    let mut rows = vec![
        ("guard", mode(report), Tone::Plain),
        ("rules", rules(report), Tone::Plain),
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
            stopped(report.mode, &clock(at, now, look), Said::OfTheGuard),
            Tone::Broken,
        ));
    }
    rows.push(("today", today(report), Tone::Plain));
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
    let rules = counted(report.rules as usize, "rule");
    let mut open = counted(report.open as usize, "open violation");
    if report.would_have_ended > 0 {
        let jobs = counted(report.would_have_ended as usize, "job");
        open = format!("{open}, {jobs} {WOULD_HAVE_ENDED}");
    }
    let stopped = match report.tripped_at {
        Some(_) if report.mode > GuardMode::DryRun => ", but stopped: see gpukillctl guard status",
        Some(_) | None => "",
    };
    format!(
        "{}{stopped}, {rules}, {open}, {}",
        mode(report),
        today(report)
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
fn stopped(mode: GuardMode, since: &str, said: Said) -> String {
    let look = match said {
        Said::OfTheGuard => "look at gpukillctl guard violations, and go on",
        Said::AmongViolations => "an admin has it go on",
    };
    match mode {
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

fn mode(report: &GuardReport) -> String {
    match report.mode {
        GuardMode::DryRun => format!(
            "dry-run of {}: nobody is warned or ended",
            report.rehearses.name()
        ),
        GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce => report.mode.name().to_owned(),
    }
}

fn rules(report: &GuardReport) -> String {
    let rules = counted(report.rules as usize, "rule");
    match &report.revision {
        None => format!("there is no {}: nobody is limited", report.file),
        Some(revision) => format!("{rules} in {}, revision {}", report.file, revision.0),
    }
}

fn today(report: &GuardReport) -> String {
    let (warned, ended) = (report.warned_today, report.ended_today);
    match report.mode {
        GuardMode::Disabled => "nothing is judged".to_owned(),
        GuardMode::DryRun => format!("{warned} would be warned and {ended} ended today"),
        GuardMode::Soft | GuardMode::Enforce => format!("{warned} warned and {ended} ended today"),
    }
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

/// What an edit changed, or would; and what it comes to, where it is of the mode.
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
        Some(Was::Stopped | Was::Other | Was::Same) | None => difference(report, doing, look),
    };
    lines.extend(turned.into_iter().flatten());
    lines
}

fn difference(report: &EditReport, doing: Doing, look: &Look) -> Vec<Line> {
    if is_nothing(report) {
        return vec![Line::plain("nothing changes: the rules say so already")];
    }
    let mut lines: Vec<Line> = report
        .difference
        .lines()
        .map(|line| {
            let tone = match line.as_bytes().first() {
                Some(b'+') => Tone::Strong,
                Some(b'-') => Tone::Faint,
                Some(_) | None => Tone::Plain,
            };
            Line::toned(shown(line, look.symbols), tone)
        })
        .collect();
    lines.push(match doing {
        Doing::Saying => Line::plain("nothing is changed yet"),
        Doing::Doing => in_force(report),
    });
    lines
}

/// Whether an edit neither writes anything nor puts anything in force.
pub(crate) fn is_nothing(report: &EditReport) -> bool {
    report.difference.is_empty() && report.before.as_ref() == Some(&report.after)
}

/// What holds now.
pub(crate) fn in_force(report: &EditReport) -> Line {
    Line::plain(format!("in force: revision {}", report.after.0))
}

/// What is wrong in a file, one mistake a line.
pub(crate) fn mistakes(file: &str, mistakes: &[Mistake], look: &Look) -> Vec<Line> {
    let file = shown(file, look.symbols);
    let mut lines: Vec<Line> = mistakes
        .iter()
        .flat_map(|mistake| {
            let text = shown(&mistake.to_string(), look.symbols);
            let texts = wrap(&text, 0, 2, look.width);
            texts
                .into_iter()
                .map(|text| Line::toned(text, Tone::Broken))
        })
        .collect();
    let count = counted(mistakes.len(), "mistake");
    lines.push(Line::plain(format!("{file}: {count}")));
    lines
}

/// That a file is right, and what is odd about it.
pub(crate) fn checked(file: &str, rules: &Rules, odd: &[Warning], look: &Look) -> Vec<Line> {
    let mut lines: Vec<Line> = odd
        .iter()
        .flat_map(|warning| {
            let text = shown(&warning.to_string(), look.symbols);
            let texts = wrap(&text, 0, 2, look.width);
            texts
                .into_iter()
                .map(|text| Line::toned(text, Tone::Doubtful))
        })
        .collect();
    let file = shown(file, look.symbols);
    let policies = counted(rules.count(), "rule");
    let odd = match odd.len() {
        0 => "no mistake".to_owned(),
        several => format!("no mistake, {}", counted(several, "warning")),
    };
    lines.push(Line::plain(format!(
        "{file}: {policies}, {}; {odd}",
        rules.mode.name()
    )));
    lines
}

/// A text of rules: as it is for a file or a program, and [`printable`] for a terminal.
pub(crate) fn print_rules(text: &str) -> Result<(), Failure> {
    if is_terminal() {
        print(&printable(text))
    } else {
        print(text)
    }
}

/// A text of rules for a terminal: what could steer it is made visible.
pub(super) fn printable(text: &str) -> String {
    let piece = |piece: &str| visible(piece.as_bytes(), usize::MAX);
    let line = |line: &str| {
        // As lines end elsewhere.
        let (line, end) = match line.strip_suffix('\r') {
            Some(line) => (line, "\r"),
            None => (line, ""),
        };
        let pieces: Vec<String> = line.split('\t').map(piece).collect();
        pieces.join("\t") + end
    };
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}
