//! `audit --summary` and `--weekly`, for people: the use of the GPUs by user, process and time,
//! and the gaps.

pub(in crate::output) mod busy_chart;
mod devices;
pub(in crate::output) mod number;
pub(in crate::output) mod share;
mod top;
mod weeks;

use crate::output::audit::history::TimeSpan;
use crate::output::style::OutputStyle;
use crate::output::text::{Line, Tone, wrapped_lines};
use crate::output::value::{counted, date_and_time, formatted, weekday_and_time};
use gpukill_proto::audit::{AuditSummary, Gap};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
pub(in crate::output) use number::{hours, percent};
use std::cmp::Reverse;
use std::time::Duration;

/// Maximum number of gaps to name, the longest first.
const MAX_GAPS: usize = 10;

/// A summary and its request.
#[derive(Debug, Clone)]
pub(crate) struct SummaryView<'a> {
    pub summary: &'a AuditSummary,
    /// The requested time range.
    pub span: TimeSpan,
    /// The conditions, each as an option and its value.
    pub only: Vec<(&'static str, &'a str)>,
    /// The oldest record that is kept, looked up when the time range has none.
    pub recorded_since: Option<Timestamp>,
    /// The time of display.
    pub now: Timestamp,
}

/// The screen of `audit --summary`.
pub(crate) fn lines(shown: &SummaryView<'_>, style: &OutputStyle) -> Vec<Line> {
    let summary = shown.summary;
    if is_empty(summary) {
        return no_records_lines(shown, style);
    }
    let mut lines = vec![heading(shown, None, style)];
    // The time of devices includes all users, so it is left out when users or processes are
    // selected.
    let is_of_all = shown.only.iter().all(|(option, _)| *option == "--gpu");
    if is_of_all {
        lines.extend(share::lines(summary.total_times(), style));
    }
    let of_all = |part: Vec<Line>| if is_of_all { part } else { Vec::new() };
    let parts = [
        top::lines(summary, style),
        of_all(busy_chart::lines(summary, style)),
        of_all(devices::lines(summary, shown.now, style)),
        gap_lines(&summary.gaps, shown.now, style),
    ];
    lines.extend(separated(parts));
    lines
}

/// The parts that are not empty, each after an empty line.
fn separated(parts: impl IntoIterator<Item = Vec<Line>>) -> impl Iterator<Item = Line> {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| std::iter::once(Line::default()).chain(part))
}

/// The screen of `audit --weekly`.
pub(crate) fn weekly(shown: &SummaryView<'_>, style: &OutputStyle) -> Vec<Line> {
    let summary = shown.summary;
    if is_empty(summary) {
        return no_records_lines(shown, style);
    }
    let weeks = counted(summary.weeks.len(), "week");
    let mut lines = vec![heading(shown, Some(&weeks), style)];
    let gaps = gap_lines(&summary.gaps, shown.now, style);
    lines.extend(separated([weeks::lines(&summary.weeks, style), gaps]));
    lines
}

fn is_empty(summary: &AuditSummary) -> bool {
    summary.total_times().total_ms() == 0
        && summary.owners.is_empty()
        && summary.processes.is_empty()
}

/// The text when nothing is recorded, with hints.
fn no_records_lines(shown: &SummaryView<'_>, style: &OutputStyle) -> Vec<Line> {
    let TimeSpan { since, until } = shown.span;
    let kept = shown.recorded_since.map(|oldest| match oldest < since {
        true => {
            let day = formatted(oldest, "%Y-%m-%d", style.zone);
            format!("further back: gpukillctl audit --summary --since {day}")
        }
        false => format!("the oldest record is of {}", date_and_time(oldest, style)),
    });
    let [since, until] = [since, until].map(|moment| date_and_time(moment, style));
    let texts = [
        format!("nothing is recorded from {since} to {until}"),
        "whether samples are written: gpukillctl status".to_owned(),
    ];
    let texts = texts.into_iter().chain(kept);
    texts
        .map(|text| Line::plain(text).cut(style.width, style.symbols))
        .collect()
}

/// `7 days to Fri 14:02 · 8 GPUs, 1,344 GPU-hours`
fn heading(shown: &SummaryView<'_>, instead: Option<&str>, style: &OutputStyle) -> Line {
    let SummaryView {
        summary,
        span,
        only,
        recorded_since: _,
        now,
    } = shown;
    let dot = style.symbols.separator();
    // Samples are seconds apart, so a first sample shortly after the start is no gap.
    let whole = span.until.since(span.since);
    let is_near = |a: Timestamp, b: Timestamp| a.since(b).max(b.since(a)) <= whole / 100;
    let begins_late = !is_near(summary.since, span.since);
    let since = if begins_late {
        summary.since
    } else {
        span.since
    };
    let until = if is_near(summary.until, span.until) {
        span.until
    } else {
        summary.until
    };
    let length = instead.map_or_else(|| length(until.since(since)), str::to_owned);
    let mut line = Line::with_tone(
        format!("{length} to {}", weekday_and_time(until, *now, style)),
        Tone::Strong,
    );
    // First, because a narrow screen cuts the end.
    for (option, value) in only {
        let value = crate::output::text::escaped(value, style.symbols);
        line.push(format!("{dot}{option} {value}"), Tone::Plain);
    }
    let gpus = counted(summary.devices.len(), "GPU");
    let hours = number::whole_hours(summary.total_times().total_ms());
    let is_of_all = only.iter().all(|(option, _)| *option == "--gpu");
    let of_all = if is_of_all { "" } else { "of all " };
    line.push(
        format!("{dot}{of_all}{gpus}, {hours} GPU-hours"),
        Tone::Plain,
    );
    if begins_late {
        line.push(format!("{dot}nothing recorded before"), Tone::Doubtful);
    }
    line.cut(style.width, style.symbols)
}

/// `7 days`, `12 hours`, `3d 4h`
fn length(length: Duration) -> String {
    const MINUTES_OF_AN_HOUR: u64 = 60;
    const MINUTES_OF_A_DAY: u64 = 1440;
    let minutes = length.as_secs().saturating_add(30) / 60;
    let units = |of: u64| usize::try_from(minutes / of).unwrap_or(usize::MAX);
    if minutes > 0 && minutes.is_multiple_of(MINUTES_OF_A_DAY) {
        counted(units(MINUTES_OF_A_DAY), "day")
    } else if minutes > 0
        && minutes < MINUTES_OF_A_DAY
        && minutes.is_multiple_of(MINUTES_OF_AN_HOUR)
    {
        counted(units(MINUTES_OF_AN_HOUR), "hour")
    } else {
        format_duration(length)
    }
}

/// `Not seen: Wed 03:00 to 05:00, Thu 23:00 to Fri 01:00`
pub(crate) fn gap_lines(gaps: &[Gap], now: Timestamp, style: &OutputStyle) -> Vec<Line> {
    if gaps.is_empty() {
        return Vec::new();
    }
    let mut named: Vec<&Gap> = gaps.iter().collect();
    named.sort_indirect_by_key(|gap| Reverse(gap.until.since(gap.from)));
    named.truncate(MAX_GAPS);
    named.sort_indirect_by_key(|gap| gap.from);
    let mut texts: Vec<String> = named.iter().map(|gap| gap_text(gap, now, style)).collect();
    match gaps.len() - named.len() {
        0 => {}
        1 => texts.push("and a shorter one".into()),
        more => texts.push(format!("and {more} shorter ones")),
    }
    let text = format!("Not seen: {}", texts.join(", "));
    let lines = wrapped_lines(&text, Tone::Doubtful, style).into_iter();
    lines
        .map(|line| line.cut(style.width, style.symbols))
        .collect()
}

fn gap_text(gap: &Gap, now: Timestamp, style: &OutputStyle) -> String {
    let on = |moment| formatted(moment, "%Y-%m-%d", style.zone);
    let from = weekday_and_time(gap.from, now, style);
    let until = weekday_and_time(gap.until, now, style);
    if until == from {
        return from;
    }
    let until = if on(gap.from) == on(gap.until) {
        formatted(gap.until, "%H:%M", style.zone)
    } else {
        until
    };
    format!("{from} to {until}")
}
