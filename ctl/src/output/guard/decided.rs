//! The tables of `guard violations`: what goes on, and what was decided.

use super::words::{gpus, measured, processes, step, who};
use crate::output::line::{Line, Tone, shown};
use crate::output::look::Look;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::value::{clock, counted, date_and_clock};
use gpukill_proto::guard::{GuardRecord, GuardStep, OpenViolation, ViolationPage};
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
        Column::left("WHO", WhenNarrow::Stays),
        Column::left("GPU", WhenNarrow::Goes(2)),
        Column::left("RULE", WhenNarrow::Shrinks(12)),
        Column::left("WHAT", WhenNarrow::Shrinks(10)),
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(12, 1)),
        Column::left("MEASURED", WhenNarrow::Goes(3)),
    ]);
    for (_, record) in &page.records {
        table.push(Row::Cells(row(record, look)));
    }
    lines.extend(table.lines(look));
    lines
}

/// Those that go on, with their clocks.
pub(super) fn going_on(open: &[OpenViolation], now: Timestamp, look: &Look) -> Vec<Line> {
    if open.is_empty() {
        return vec![Line::plain("no violation goes on")];
    }
    let heading = format!("{} now", counted(open.len(), "violation"));
    let mut lines = vec![Line::toned(heading, Tone::Strong), Line::default()];
    let mut table = Table::new(vec![
        Column::left("WHO", WhenNarrow::Stays),
        Column::left("GPU", WhenNarrow::Goes(2)),
        Column::left("RULE", WhenNarrow::Shrinks(12)),
        Column::left("SINCE", WhenNarrow::Goes(3)),
        Column::left("WARNED", WhenNarrow::Goes(4)),
        Column::left("ENDS", WhenNarrow::Stays),
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(12, 1)),
        Column::left("MEASURED", WhenNarrow::Stays),
    ]);
    for violation in open {
        let evidence = &violation.evidence;
        let moment = |at: Option<Timestamp>| {
            at.map_or_else(|| look.symbols.none().to_owned(), |at| clock(at, now, look))
        };
        let ends = match violation.ended_at {
            Some(at) => format!("ended {}", clock(at, now, look)),
            None => moment(violation.deadline),
        };
        table.push(Row::Cells(vec![
            Cell::plain(shown(&who(&violation.subject, evidence), look.symbols)),
            Cell::plain(gpus(&evidence.runs)),
            Cell::plain(shown(&violation.rule.to_string(), look.symbols)),
            Cell::plain(clock(evidence.since, now, look)),
            Cell::plain(moment(violation.warned_at)),
            Cell::plain(ends),
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

fn row(record: &GuardRecord, look: &Look) -> Vec<Cell> {
    let evidence = &record.evidence;
    let (runs, count) = match &record.step {
        GuardStep::Ended(victim) => (&victim.runs, victim.count),
        GuardStep::Violated | GuardStep::Warned { .. } | GuardStep::Spared(_) | GuardStep::Over => {
            (&evidence.runs, evidence.count)
        }
    };
    let text = |text: &str| Cell::plain(shown(text, look.symbols));
    vec![
        Cell::plain(date_and_clock(record.at, look)),
        text(&who(&record.subject, evidence)),
        Cell::plain(gpus(runs)),
        text(&record.rule.to_string()),
        text(&step(&record.step, record.mode)),
        text(&processes(runs, count)),
        Cell::plain(measured(record.rule.kind, evidence.measured)),
    ]
}
