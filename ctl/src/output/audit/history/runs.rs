//! The table of runs, for people: one line for each job or process, the newest at the end.

use super::{Coverage, TimeSpan, heading};
use crate::output::audit::summary::number::{hours, percent};
use crate::output::owner_cells::owner_name;
use crate::output::style::{OutputStyle, Symbols};
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped};
use crate::output::value::{WEEKDAY_TIME, formatted, gpus, size};
use gpukill_proto::audit::{Gap, RunEnd, RunRecord};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// The table of runs with its heading. Runs come newest first.
pub(super) fn lines(
    runs: &[RunRecord],
    span: TimeSpan,
    coverage: &Coverage,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = vec![heading(runs.len(), ["run", "runs"], "", span, style)];
    if !runs.is_empty() {
        lines.push(Line::default());
        let mut table = Table::new(columns());
        let gaps = coverage.gaps.as_deref().unwrap_or_default();
        let mut has_gap = false;
        for run in runs.iter().rev() {
            let unseen = unseen_time(run, gaps);
            has_gap |= !unseen.is_zero();
            table.push(row(run, unseen, span.until, style));
        }
        lines.extend(table.lines(style));
        if has_gap {
            let text = "* seen in parts only: TIME is without the rest";
            let line = Line::with_tone(text, Tone::Doubtful);
            lines.push(line.cut(style.width, style.symbols));
        }
    }
    lines
}

/// The time of a run in which nothing was recorded.
fn unseen_time(run: &RunRecord, gaps: &[Gap]) -> Duration {
    let overlap = |gap: &Gap| gap.until.min(run.until).since(gap.from.max(run.from));
    gaps.iter().map(overlap).sum()
}

fn columns() -> Vec<Column> {
    vec![
        Column::left("FROM", WhenNarrow::Stays),
        Column::left("TO", WhenNarrow::Goes(1)),
        Column::right("TIME", WhenNarrow::Stays),
        Column::right("GPU", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::left("PROCESS", WhenNarrow::Shrinks(17)),
        Column::right("BUSY", WhenNarrow::Stays),
        Column::right("UTIL", WhenNarrow::Goes(2)),
        Column::right("PEAK", WhenNarrow::Goes(3)),
        Column::right("GPU-h", WhenNarrow::Goes(4)),
        Column::left("END", WhenNarrow::Shrinks(15)),
    ]
}

fn row(run: &RunRecord, unseen: Duration, now: Timestamp, style: &OutputStyle) -> Row {
    let symbols = style.symbols;
    let used = &run.used;
    let moment = |at: Timestamp| {
        if at <= now && now.since(at) < WEEKDAY_TIME {
            formatted(at, "%a %H:%M", style.zone)
        } else {
            formatted(at, "%b %d %H:%M", style.zone)
        }
    };
    let none = || symbols.placeholder().to_owned();
    let until = match run.end == RunEnd::Running {
        true => none(),
        false => moment(run.until),
    };
    let owner = run.owner.as_ref().map(|owner| owner.name.as_str());
    let label = escaped(&run.label, symbols);
    let process = match (run.processes, symbols) {
        (..=1, _) => label,
        (count, Symbols::Unicode) => format!("{count}× {label}"),
        (count, Symbols::Ascii) => format!("{count}x {label}"),
    };
    let busy = match used.busy_ms.saturating_add(used.idle_ms) {
        0 => none(),
        known => percent(used.busy_ms, known),
    };
    let seen = format_duration(run.until.since(run.from).saturating_sub(unseen));
    let time = match unseen.is_zero() {
        true => Cell::plain(seen),
        false => Cell::with_tone(seen + "*", Tone::Doubtful),
    };
    let utilization = run.utilization;
    let utilization = utilization.map_or_else(none, |it| format!("{} %", it.0));
    Row::Cells(vec![
        Cell::plain(moment(run.from)),
        Cell::plain(until),
        time,
        Cell::plain(gpus(run.gpus.iter().map(|gpu| gpu.index))),
        Cell::plain(owner_name(owner, run.user.as_deref(), run.uid, symbols)),
        Cell::plain(process),
        Cell::plain(busy),
        Cell::plain(utilization),
        Cell::plain(used.memory_max.map_or_else(none, size)),
        Cell::plain(hours(used.total_ms())),
        end(&run.end, symbols),
    ])
}

/// `exited`, `killed by carol`, `guard: idle over 120 min`
fn end(end: &RunEnd, symbols: Symbols) -> Cell {
    let (text, tone) = match end {
        RunEnd::Running => ("running".into(), Tone::Busy),
        RunEnd::Exited => ("exited".into(), Tone::Plain),
        RunEnd::Released => ("left the GPU".into(), Tone::Plain),
        RunEnd::Killed { by, by_name, .. } => {
            let by = owner_name(None, by_name.as_deref(), *by, symbols);
            (format!("killed by {by}"), Tone::Broken)
        }
        RunEnd::EndedByGuard { rule: None, .. } => ("guard".into(), Tone::Broken),
        RunEnd::EndedByGuard {
            rule: Some(rule), ..
        } => {
            let rule = escaped(rule.strip_prefix("default: ").unwrap_or(rule), symbols);
            (format!("guard: {rule}"), Tone::Broken)
        }
        RunEnd::Reset { .. } => ("GPU reset".into(), Tone::Broken),
        RunEnd::Rebooted => ("reboot".into(), Tone::Doubtful),
        RunEnd::Unobserved => ("unknown".into(), Tone::Doubtful),
    };
    Cell::with_tone(text, tone)
}
