//! The tables of `guard violations`: what goes on, and what was decided.

use super::words::{
    WHICH, ending, gpus, measured, names, only_warned, pid, processes, spares, step, who,
};
use super::{Said, stopped};
use crate::output::line::{Line, Tone, shown, wrap};
use crate::output::look::Look;
use crate::output::mark::WOULD_HAVE_ENDED;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::value::{clock, clock_or_day, counted, minute, minute_or_day};
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardReport, GuardStep, OpenViolation, RuleName, ViolationPage, jobs,
};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// What goes on, as the guard stands, then what was decided, newest first.
pub(crate) fn violations(
    page: &ViolationPage,
    guard: &GuardReport,
    now: Timestamp,
    look: &Look,
) -> Vec<Line> {
    let stands = Stands::of(guard);
    let mut lines = going_on(&page.open, &page.would_have_ended, stands, now, look);
    if page.records.is_empty() {
        lines.push(Line::plain("nothing was decided in this time"));
        return lines;
    }
    lines.push(Line::default());
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(2)),
        Column::left("RULE", WhenNarrow::Shrinks(14)),
        // `more time, 1 left`
        Column::left("WHAT", WhenNarrow::Shrinks(17)),
        Column::left("PID", WhenNarrow::Stays),
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(12, 1)),
        Column::left("MEASURED", WhenNarrow::Goes(3)),
    ]);
    for (_, record) in &page.records {
        let (what, below) = told(record, look);
        table.push(Row::Cells(row(record, what, now, look)));
        for text in below {
            table.push(Row::Sentence(vec![Cell::plain("")], Cell::plain(text)));
        }
    }
    lines.extend(table.lines(look));
    lines
}

/// How the guard stands towards what goes on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stands {
    /// Nobody is warned or ended.
    Nothing,
    /// The guard is off, and no violation goes on by it.
    Off,
    /// It warns or ends in this mode.
    Does(GuardMode),
    /// It would in this mode, and has stopped since then; whether that was in a dry run.
    Stopped(GuardMode, Timestamp, bool),
    /// Rules were tried, which act in this mode.
    Tried(GuardMode),
}

impl Stands {
    const fn of(guard: &GuardReport) -> Self {
        match (guard.mode, guard.tripped_at) {
            (GuardMode::Disabled, _) => Self::Off,
            (GuardMode::DryRun, None) => Self::Nothing,
            (mode @ (GuardMode::Soft | GuardMode::Enforce), None) => Self::Does(mode),
            (mode @ (GuardMode::DryRun | GuardMode::Soft | GuardMode::Enforce), Some(at)) => {
                Self::Stopped(mode, at, guard.is_trip_simulated)
            }
        }
    }
}

/// Those that go on, with their clocks; how many jobs a dry run would have ended.
pub(super) fn going_on(
    open: &[OpenViolation],
    would_have_ended: &[OpenViolation],
    stands: Stands,
    now: Timestamp,
    look: &Look,
) -> Vec<Line> {
    let mut lines = heading(open, would_have_ended, stands, look);
    if let Stands::Stopped(mode, at, is_simulated) = stands {
        let text = stopped(
            (mode, is_simulated),
            &clock(at, now, look),
            Said::AmongViolations,
        );
        let texts = wrap(&text, 0, 2, look.width).into_iter();
        lines.extend(texts.map(|text| Line::toned(text, Tone::Broken)));
    }
    if open.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    // Who has to do what until when comes first; explain tells the rest of each process.
    let mut table = Table::new(vec![
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(3)),
        Column::left("RULE", WhenNarrow::Shrinks(18)),
        Column::left("SINCE", WhenNarrow::Stays),
        Column::left("WARNED", WhenNarrow::Goes(1)),
        Column::left("END", WhenNarrow::Stays),
        // A pid of seven digits, and the beginning of a name.
        Column::left("PROCESS", WhenNarrow::Shrinks(12)),
        Column::left("MEASURED", WhenNarrow::Goes(2)),
    ]);
    for violation in open {
        let end = end(violation, now, look);
        let evidence = &violation.evidence;
        let warned = violation.warned_at.map_or_else(
            || look.symbols.none().to_owned(),
            |at| minute_or_day(at, now, look),
        );
        table.push(Row::Cells(vec![
            Cell::plain(shown(&who(&violation.subject, evidence), look.symbols)),
            Cell::plain(gpus(&evidence.runs)),
            Cell::plain(shown(&violation.rule.to_string(), look.symbols)),
            Cell::plain(minute_or_day(evidence.since, now, look)),
            Cell::plain(warned),
            Cell::plain(end),
            Cell::plain(shown(
                &processes(&evidence.runs, evidence.count),
                look.symbols,
            )),
            Cell::toned(measured(violation.rule.kind, evidence), Tone::Doubtful),
        ]));
    }
    lines.extend(table.lines(look));
    if open.iter().any(|open| is_one_of_several(open, now)) {
        let texts = wrap(WHICH, 0, 2, look.width).into_iter();
        lines.push(Line::default());
        lines.extend(texts.map(|text| Line::toned(text, Tone::Faint)));
    }
    let warned = |open: &OpenViolation| open.warned_at.is_some() && open.mode > GuardMode::DryRun;
    if matches!(stands, Stands::Does(_)) && open.iter().any(warned) {
        let texts = wrap(WARNED, 0, 2, look.width).into_iter();
        lines.push(Line::default());
        lines.extend(texts.map(|text| Line::toned(text, Tone::Faint)));
    }
    lines.extend(messages(open.iter(), look));
    lines
}

/// What a warning is: a person without a terminal has it too.
const WARNED: &str = "warned: it stands in their list and status, and on their terminals where \
    they have any: how many took it, the journal tells (GPUKILL_TERMINALS)";

/// Said of a guard that is off: whether rules are broken, nobody knows.
const OFF: &str = "the guard is disabled: nothing is judged";

/// What the admin has to say to them, each once.
fn messages<'v>(all: impl Iterator<Item = &'v OpenViolation>, look: &Look) -> Vec<Line> {
    /// So many are told: explain tells each process its own.
    const MOST: usize = 5;
    let of_rule = all.filter_map(|open| Some((&open.rule, open.message.as_deref()?)));
    let by_rule: BTreeMap<&RuleName, &str> = of_rule.collect();
    let texts = by_rule.into_iter().take(MOST).flat_map(|(rule, message)| {
        let text = shown(&format!("{rule}: {message}"), look.symbols);
        wrap(&text, 0, 2, look.width)
    });
    let mut lines: Vec<Line> = texts.map(|text| Line::toned(text, Tone::Faint)).collect();
    if !lines.is_empty() {
        lines.insert(0, Line::default());
    }
    lines
}

/// How many there are, and what comes of them.
fn heading(
    open: &[OpenViolation],
    would_have_ended: &[OpenViolation],
    stands: Stands,
    look: &Look,
) -> Vec<Line> {
    if open.is_empty() && would_have_ended.is_empty() {
        let what = match stands {
            Stands::Off => OFF,
            Stands::Nothing | Stands::Does(_) | Stands::Stopped(..) | Stands::Tried(_) => {
                "no violation goes on"
            }
        };
        return vec![Line::plain(what)];
    }
    let kept = open
        .iter()
        .filter(|it| it.not_broken_since.is_some())
        .count();
    let mut count = match open.len() - kept {
        0 => "no violation now".to_owned(),
        several => format!("{} now", counted(several, "violation")),
    };
    if kept > 0 {
        count = format!("{count}, {kept} no longer broken");
    }
    if !would_have_ended.is_empty() {
        let jobs = counted(would_have_ended.len(), "job");
        count = format!("{count}, {jobs} {WOULD_HAVE_ENDED}");
    }
    let rehearsed = open.iter().filter(|open| open.mode <= GuardMode::DryRun);
    let what = match (stands, rehearsed.count()) {
        (Stands::Nothing | Stands::Stopped(GuardMode::Disabled | GuardMode::DryRun, ..), _) => {
            "dry run: nobody is warned or ended".to_owned()
        }
        (Stands::Off, _) => OFF.to_owned(),
        (Stands::Tried(mode), _) => {
            format!("what these rules would do in mode {}", mode.name())
        }
        (Stands::Stopped(GuardMode::Soft | GuardMode::Enforce, ..), _) => {
            "stopped: nobody is warned or ended".to_owned()
        }
        (Stands::Does(mode), 0) => mode.name().to_owned(),
        (Stands::Does(mode), 1) => {
            format!(
                "{}, and 1 of them is only recorded: its policy says so",
                mode.name()
            )
        }
        (Stands::Does(mode), some) => format!(
            "{}, and {some} of them are only recorded: their policies say so",
            mode.name()
        ),
    };
    let mut line = Line::toned(count.as_str(), Tone::Strong);
    line.push(format!("{}{what}", look.symbols.dot()), Tone::Plain);
    if look.width.is_none_or(|most| line.width() <= most) {
        return vec![line];
    }
    let lines = [(count, Tone::Strong), (what, Tone::Plain)].into_iter();
    let lines = lines.flat_map(|(text, tone)| {
        let texts = wrap(&text, 0, 2, look.width).into_iter();
        texts.map(move |text| Line::toned(text, tone))
    });
    lines.collect()
}

/// When somebody is ended for it; when one of several was; that it is over soon.
pub(super) fn end(open: &OpenViolation, now: Timestamp, look: &Look) -> String {
    if let Some(at) = open.not_broken_since {
        return format!("not broken since {}", clock_or_day(at, now, "%H:%M", look));
    }
    if let Some(at) = open.ended_at {
        let ended = match open.mode {
            GuardMode::Disabled | GuardMode::DryRun => WOULD_HAVE_ENDED,
            GuardMode::Soft | GuardMode::Enforce => "ended",
        };
        return format!("1 {ended} {}", clock_or_day(at, now, "%H:%M", look));
    }
    if let Some(own) = open.own_policy {
        return spares(own).to_owned();
    }
    if open.evidence.is_spared_service {
        return only_warned(open.rule.kind).to_owned();
    }
    if let (None, Some(until)) = (open.deadline, open.snoozed_until.filter(|it| *it > now)) {
        return format!("snoozed until {}", minute(until, now, look));
    }
    let Some(deadline) = open.deadline.filter(|deadline| *deadline > now) else {
        return look.symbols.none().to_owned();
    };
    format!("{} {}", ending(open), minute(deadline, now, look))
}

/// Whether the end of one job of several is told.
fn is_one_of_several(open: &OpenViolation, now: Timestamp) -> bool {
    let is_told = open.ended_at.is_none() && open.own_policy.is_none();
    let is_to_come = open.deadline.is_some_and(|deadline| deadline > now);
    is_told && is_to_come && jobs(open) != Some(1)
}

/// What happened; and why, on lines below its row where it would be cut beside it.
fn told(record: &GuardRecord, look: &Look) -> (String, Vec<String>) {
    /// A blank, a moment of today, and a gap.
    const BEFORE: usize = 12;
    /// With less than so many columns for all, few are left for a sentence.
    const WIDE: usize = 100;
    let what = step(record);
    let Some(most) = look.width.filter(|most| *most < WIDE) else {
        return (what, Vec::new());
    };
    match what.split_once(": ") {
        Some((what, why)) => {
            let why = shown(why, look.symbols);
            let below = wrap(&why, 0, 0, Some(most.saturating_sub(BEFORE)));
            (what.to_owned(), below)
        }
        None => (what, Vec::new()),
    }
}

fn row(record: &GuardRecord, what: String, now: Timestamp, look: &Look) -> Vec<Cell> {
    let evidence = &record.evidence;
    let (runs, count) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, victim.count),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Acted(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (&evidence.runs, evidence.count),
    };
    let text = |text: &str| Cell::plain(shown(text, look.symbols));
    vec![
        Cell::plain(clock_or_day(record.at, now, "%H:%M:%S", look)),
        text(&who(&record.subject, evidence)),
        Cell::plain(gpus(runs)),
        text(&record.rule.to_string()),
        text(&what),
        Cell::plain(pid(runs)),
        text(&names(runs, count)),
        Cell::plain(measured(record.rule.kind, evidence)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::sample;
    use super::*;

    /// What is said of each record.
    fn said(page: &ViolationPage) -> Vec<String> {
        let look = sample::look(None);
        let lines = violations(page, &sample::guard_report(), sample::NOW, &look);
        let lines: Vec<String> = lines.iter().map(Line::text).collect();
        lines[lines.len() - page.records.len()..].to_vec()
    }

    #[test]
    fn what_is_said_of_a_record_hangs_on_no_other_that_is_shown() {
        let mut page = sample::violations();
        // Nothing else has an influence on the widths of columns.
        let over = page
            .records
            .iter()
            .find(|(_, it)| it.step == GuardStep::Over);
        let subject = over.expect("there is one").1.subject.clone();
        page.records.retain(|(_, it)| it.subject == subject);
        let all = said(&page);
        assert!(!all.is_empty());
        for (at, record) in page.records.clone().into_iter().enumerate() {
            let alone = ViolationPage {
                records: vec![record],
                ..page.clone()
            };
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&said(&alone)[0]), words(&all[at]));
        }
    }

    #[test]
    fn what_a_warning_is_stands_below_where_somebody_has_one() {
        let mut page = sample::violations();
        let mut guard = sample::guard_report();
        let told = |page: &ViolationPage, guard: &GuardReport| {
            let lines = violations(page, guard, sample::NOW, &sample::look(None));
            lines.iter().any(|line| line.text() == WARNED)
        };
        assert!(!told(&page, &guard), "a dry run warns nobody");
        guard.mode = GuardMode::Soft;
        for open in &mut page.open {
            open.mode = GuardMode::Soft;
        }
        assert!(told(&page, &guard));
        for open in &mut page.open {
            open.warned_at = None;
        }
        assert!(!told(&page, &guard), "nobody was warned");
    }
}
