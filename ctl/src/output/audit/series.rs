//! The screens of `audit series`: usage over time, as a table or as a chart.

use crate::exit::Error;
use crate::output::audit::history::TimeSpan;
use crate::output::audit::summary::busy_chart::level;
use crate::output::audit::summary::percent;
use crate::output::csv::{Header, documents};
use crate::output::owner_cells::owner_name;
use crate::output::style::{OutputStyle, Symbols};
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, cut, escaped, width};
use crate::output::value::{counted, date_and_time, formatted, size};
use gpukill_proto::audit::{AuditSeries, SeriesBucket, SeriesLine, SeriesValue};
use gpukill_proto::json::{SeriesDocument, SeriesRowDocument};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::{Bytes, Timestamp};
use std::time::Duration;

/// Maximum width of the name of a line in a chart.
const MAX_NAME_WIDTH: usize = 24;

const DAY: Duration = Duration::from_secs(86_400);

/// A CSV row for each bucket of each line.
pub(crate) fn csv(series: &SeriesDocument) -> Result<String, Error> {
    documents(SeriesRowDocument::FIELDS, &series.rows(), Header::First)
}

/// A table with a row for each bucket of each line that has samples.
pub(crate) fn lines(series: &AuditSeries, span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let symbols = style.symbols;
    let mut lines = vec![heading(series, span, style), Line::default()];
    let mut table = Table::new(vec![
        Column::left("TIME", WhenNarrow::Stays),
        Column::left("OF", WhenNarrow::Shrinks(8)),
        Column::right("KNOWN", WhenNarrow::Goes(2)),
        Column::right("GPUS", WhenNarrow::Stays),
        Column::right("BUSY", WhenNarrow::Stays),
        Column::right("MIN", WhenNarrow::Goes(3)),
        Column::right("UTIL", WhenNarrow::Stays),
        Column::right("MAX", WhenNarrow::Goes(4)),
        Column::right("MEMORY", WhenNarrow::Stays),
        Column::right("MAX", WhenNarrow::Goes(5)),
        Column::right("POWER", WhenNarrow::Goes(1)),
    ]);
    let form = time_format(series, style);
    let mut gaps = 0;
    for (position, line) in series.lines.iter().enumerate() {
        let name = line_name(series, position, symbols);
        for (bucket, start) in line.buckets.iter().zip(series.starts()) {
            if bucket.covered_ms == 0 {
                gaps += 1;
                continue;
            }
            let start = formatted(start, form, style.zone);
            table.push(row(&name, bucket, start, series, style));
        }
    }
    lines.extend(table.lines(style));
    lines.extend(gap_line(gaps, style));
    lines.extend(more_line(series));
    lines
}

/// The line about buckets that are no rows, because nothing is recorded of their time.
fn gap_line(count: usize, style: &OutputStyle) -> Option<Line> {
    let text = match count {
        0 => return None,
        1 => "Not seen: 1 bucket is left out".to_owned(),
        several => format!("Not seen: {several} buckets are left out"),
    };
    let line = Line::with_tone(text, Tone::Doubtful);
    Some(line.cut(style.width, style.symbols))
}

fn row(
    name: &str,
    bucket: &SeriesBucket,
    start: String,
    series: &AuditSeries,
    style: &OutputStyle,
) -> Row {
    let none = || style.symbols.placeholder().to_owned();
    let text =
        |value: Option<SeriesValue>, part: fn(SeriesValue) -> u64, form: fn(u64) -> String| {
            Cell::plain(value.map_or_else(none, |value| form(part(value))))
        };
    let in_percent = |number: u64| format!("{number}%");
    let in_bytes = |number: u64| size(Bytes(number));
    let in_watts = |number: u64| format!("{}W", number.saturating_add(500) / 1000);
    let (utilization, memory) = (bucket.utilization, bucket.memory);
    let known = bucket.busy_ms.saturating_add(bucket.idle_ms);
    let (gpus, busy) = match (bucket.covered_ms, known) {
        (0, _) => (none(), none()),
        (_, 0) => (gpus_held(bucket), none()),
        (_, known) => (gpus_held(bucket), percent(bucket.busy_ms, known)),
    };
    Row::Cells(vec![
        Cell::plain(start),
        Cell::plain(name),
        Cell::plain(percent(bucket.covered_ms, series.step_ms)),
        Cell::plain(gpus),
        Cell::plain(busy),
        text(utilization, |value| value.min, in_percent),
        text(utilization, |value| value.mean, in_percent),
        text(utilization, |value| value.max, in_percent),
        text(memory, |value| value.mean, in_bytes),
        text(memory, |value| value.max, in_bytes),
        text(bucket.power, |value| value.mean, in_watts),
    ])
}

/// The mean number of GPUs that were held.
#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn gpus_held(bucket: &SeriesBucket) -> String {
    let gpus = bucket.held_ms() as f64 / bucket.covered_ms.max(1) as f64;
    format!("{gpus:.1}")
}

/// A chart with one line for each GPU, owner or job: its utilization, or the number of GPUs that
/// it held. A gap in the recording stays empty.
pub(crate) fn plot_lines(series: &AuditSeries, span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let symbols = style.symbols;
    let names = (0..series.lines.len()).map(|position| {
        let name = line_name(series, position, symbols);
        cut(&name, MAX_NAME_WIDTH, symbols)
    });
    let names: Vec<String> = names.collect();
    let name_width = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let mut lines = vec![heading(series, span, style), Line::default()];
    for (line, name) in series.lines.iter().zip(&names) {
        let mut shown = Line::plain(format!(" {name}"));
        shown.pad((name_width + 3).saturating_sub(shown.width()));
        let (chart, scale) = chart(line, symbols);
        shown.push(chart, Tone::Busy);
        shown.push(format!("  {scale}"), Tone::Faint);
        lines.push(shown);
    }
    let count = series.lines.first().map_or(0, |line| line.buckets.len());
    let end = series.starts().nth(count).unwrap_or(span.until);
    let form = time_format(series, style);
    let [from, until] = [series.since, end].map(|at| formatted(at, form, style.zone));
    let mut axis = Line::default();
    axis.pad(name_width + 3);
    axis.push(from.clone(), Tone::Faint);
    let room = count.saturating_sub(width(&from) + width(&until));
    axis.push(" ".repeat(room.max(1)), Tone::Plain);
    axis.push(until, Tone::Faint);
    lines.push(axis);
    lines.extend(more_line(series));
    let lines = lines.into_iter();
    lines.map(|line| line.cut(style.width, symbols)).collect()
}

/// The chart of a line, and its highest value.
fn chart(line: &SeriesLine, symbols: Symbols) -> (String, String) {
    let has_utilization = line.buckets.iter().any(|it| it.utilization.is_some());
    // Held time as a share of the covered time is the number of GPUs.
    let share = |bucket: &SeriesBucket| match bucket.utilization {
        Some(value) => (value.mean, 100),
        None if has_utilization => (0, 0),
        None => (bucket.held_ms(), bucket.covered_ms),
    };
    let known = || line.buckets.iter().map(share).filter(|(_, all)| *all > 0);
    let highest = known().max_by(|(part, all), (other, all_other)| {
        let (one, two) = (
            u128::from(*part) * u128::from(*all_other),
            u128::from(*other) * u128::from(*all),
        );
        one.cmp(&two)
    });
    let top = if has_utilization {
        (100, 100)
    } else {
        highest.unwrap_or((1, 1))
    };
    let chart = line.buckets.iter().map(|bucket| match share(bucket) {
        (_, 0) => " ",
        (0, _) => symbols.placeholder(),
        share => level(share, top, symbols),
    });
    let scale = match highest {
        Some((part, all)) if has_utilization => format!("up to {}", percent(part, all)),
        Some((part, all)) => {
            let held = SeriesBucket {
                covered_ms: all,
                busy_ms: part,
                ..SeriesBucket::default()
            };
            format!("up to {} GPUs", gpus_held(&held))
        }
        None => String::new(),
    };
    (chart.collect(), scale)
}

/// `GPU 5`, `alice`, `alice: slurm 1234.0`, `812 others`
fn line_name(series: &AuditSeries, position: usize, symbols: Symbols) -> String {
    if let Some(count) = series.summed_lines(position) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        return counted(count, "other");
    }
    let Some(line) = series.lines.get(position) else {
        return String::new();
    };
    if let Some(gpu) = &line.gpu {
        return format!("GPU {}", gpu.index);
    }
    let owner = line.owner.as_ref();
    let name = owner_name(
        owner.map(|owner| owner.name.as_str()),
        None,
        owner.and_then(|owner| owner.uid),
        symbols,
    );
    match &line.job {
        Some(job) => format!("{name}: {}", escaped(job, symbols)),
        None => name,
    }
}

/// `48 buckets of 30m · 2026-11-20 14:02:31 to 2026-11-21 14:02:31`
fn heading(series: &AuditSeries, span: TimeSpan, style: &OutputStyle) -> Line {
    let count = series.lines.first().map_or(0, |line| line.buckets.len());
    let step = format_duration(Duration::from_millis(series.step_ms));
    let [since, until] = [span.since, span.until].map(|at| date_and_time(at, style));
    let dot = style.symbols.separator();
    let text = format!(
        "{} of {step}{dot}{since} to {until}",
        counted(count, "bucket")
    );
    Line::plain(text).cut(style.width, style.symbols)
}

/// The format of the start of a bucket. Days without a time of day begin at midnight of the style's
/// zone; the buckets begin at midnight in UTC.
fn time_format(series: &AuditSeries, style: &OutputStyle) -> &'static str {
    let count = series.lines.first().map_or(0, |line| line.buckets.len());
    let step = Duration::from_millis(series.step_ms);
    let length = step.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    let is_midnight = |start: Timestamp| formatted(start, "%H:%M", style.zone) == "00:00";
    if step >= DAY && series.starts().take(count).all(is_midnight) {
        "%Y-%m-%d"
    } else if step >= DAY {
        "%Y-%m-%d %H:%M"
    } else if length > DAY {
        "%b %d %H:%M"
    } else {
        "%H:%M:%S"
    }
}

/// The number of omitted lines, unless the last line is their sum.
fn more_line(series: &AuditSeries) -> Option<Line> {
    let more = usize::try_from(series.more_lines).unwrap_or(usize::MAX);
    let last = series.lines.len().saturating_sub(1);
    (more > 0 && series.summed_lines(last).is_none())
        .then(|| Line::with_tone(format!("and {} more", counted(more, "line")), Tone::Faint))
}
