//! The tables of `guard violations`: what goes on, and what was decided.

use super::words::{gpus, measured, processes, step, who};
use crate::output::line::{Line, Tone, shown};
use crate::output::look::Look;
use crate::output::mark::ends;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::value::{counted, day_and_clock, minute};
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardStep, Marked, OpenViolation, ViolationPage,
};
use gpukill_proto::units::Timestamp;

/// What goes on, then what was decided, newest first.
pub(crate) fn violations(page: &ViolationPage, now: Timestamp, look: &Look) -> Vec<Line> {
    let mut lines = going_on(&page.open, now, look);
    if page.records.is_empty() {
        lines.push(Line::plain("nothing was decided in this time"));
        return lines;
    }
    lines.push(Line::default());
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(2)),
        Column::left("RULE", WhenNarrow::Shrinks(16)),
        // `would warn (2)`
        Column::left("WHAT", WhenNarrow::Shrinks(14)),
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(12, 1)),
        Column::left("MEASURED", WhenNarrow::Goes(3)),
    ]);
    for (_, record) in &page.records {
        table.push(Row::Cells(row(record, now, look)));
    }
    lines.extend(table.lines(look));
    lines
}

/// Those that go on, with their clocks.
pub(super) fn going_on(open: &[OpenViolation], now: Timestamp, look: &Look) -> Vec<Line> {
    if open.is_empty() {
        return vec![Line::plain("no violation goes on")];
    }
    let mut lines = vec![heading(open, look), Line::default()];
    let mut table = Table::new(vec![
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(4)),
        Column::left("RULE", WhenNarrow::Shrinks(16)),
        Column::left("SINCE", WhenNarrow::Goes(3)),
        Column::left("WARNED", WhenNarrow::Goes(2)),
        Column::left("END", WhenNarrow::Stays),
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(12, 1)),
        Column::left("MEASURED", WhenNarrow::Stays),
    ]);
    for violation in open {
        let evidence = &violation.evidence;
        let warned = violation.warned_at.map_or_else(
            || look.symbols.none().to_owned(),
            |at| day_and_clock(at, now, look),
        );
        table.push(Row::Cells(vec![
            Cell::plain(shown(&who(&violation.subject, evidence), look.symbols)),
            Cell::plain(gpus(&evidence.runs)),
            Cell::plain(shown(&violation.rule.to_string(), look.symbols)),
            Cell::plain(day_and_clock(evidence.since, now, look)),
            Cell::plain(warned),
            Cell::plain(end(violation, now, look)),
            Cell::plain(shown(
                &processes(&evidence.runs, evidence.count),
                look.symbols,
            )),
            Cell::toned(
                measured(violation.rule.kind, evidence.measured),
                Tone::Doubtful,
            ),
        ]));
    }
    lines.extend(table.lines(look));
    lines
}

/// How many there are, and of how many nobody is told.
fn heading(open: &[OpenViolation], look: &Look) -> Line {
    let count = format!("{} now", counted(open.len(), "violation"));
    let mut line = Line::toned(count, Tone::Strong);
    let dry = open.iter().filter(|open| open.mode <= GuardMode::DryRun);
    let dry = dry.count();
    if dry > 0 {
        let which = if dry == open.len() {
            "nobody is warned or ended".to_owned()
        } else {
            format!("for {dry} of them nobody is warned or ended")
        };
        line.push(
            format!("{}dry run: {which}", look.symbols.dot()),
            Tone::Plain,
        );
    }
    line.cut(look.width, look.symbols)
}

/// When somebody is ended for it, or was.
fn end(open: &OpenViolation, now: Timestamp, look: &Look) -> String {
    if let Some(at) = open.ended_at {
        let ended = match open.mode {
            GuardMode::Disabled | GuardMode::DryRun => "would have ended",
            GuardMode::Soft | GuardMode::Enforce => "ended",
        };
        return format!("{ended} {}", day_and_clock(at, now, look));
    }
    let Some(deadline) = open.deadline.filter(|deadline| *deadline > now) else {
        return look.symbols.none().to_owned();
    };
    let marks = Marked::all_of(open);
    let ends = ends(open.mode, marks.first().is_some_and(|mark| mark.is_sole));
    format!("{ends} {}", minute(deadline, now, look))
}

fn row(record: &GuardRecord, now: Timestamp, look: &Look) -> Vec<Cell> {
    let evidence = &record.evidence;
    let (runs, count) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, victim.count),
        GuardStep::Violated | GuardStep::Warned { .. } | GuardStep::Spared(_) | GuardStep::Over => {
            (&evidence.runs, evidence.count)
        }
    };
    let text = |text: &str| Cell::plain(shown(text, look.symbols));
    vec![
        Cell::plain(day_and_clock(record.at, now, look)),
        text(&who(&record.subject, evidence)),
        Cell::plain(gpus(runs)),
        text(&record.rule.to_string()),
        text(&step(&record.step, record.mode)),
        text(&processes(runs, count)),
        Cell::plain(measured(record.rule.kind, evidence.measured)),
    ]
}
