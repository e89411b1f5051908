//! `audit report`: a period as plain text that can be mailed: the use of the GPUs, what to look
//! at, the people, and what was ended and what failed.

use crate::output::audit::history::TimeSpan;
use crate::output::audit::summary::{
    gap_lines, hours, number::whole_hours, percent, share::named_parts,
};
use crate::output::style::{OutputStyle, Symbols};
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, wrap};
use crate::output::value::{counted, formatted, gpus, size, thousands};
use gpukill_policy::usage::findings::{ActionTotals, KillTotals, UsageFinding, usage_findings};
use gpukill_proto::audit::{AuditSummary, OwnerTime, UsageTimes};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{DeviceId, Owner};
use gpukill_proto::text::{format_duration, quote_for_shell};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Mail programs show lines of this length whole.
const MAX_WIDTH: usize = 78;

/// The most people to name.
const MAX_PEOPLE: usize = 20;

/// The most events to name in each part.
const MAX_EVENTS: usize = 10;

/// The content of a report.
#[derive(Debug, Clone)]
pub(crate) struct UsageReportView<'a> {
    /// The host name, as the daemon states it.
    pub host: &'a str,
    pub span: TimeSpan,
    /// The group of the people in the summary; `None` for all people.
    pub group: Option<&'a str>,
    pub summary: &'a AuditSummary,
    /// The times of all devices in the period of the same length before; `None` if nothing was
    /// recorded then.
    pub times_before: Option<UsageTimes>,
    pub totals: &'a ActionTotals,
    /// The time of display.
    pub now: Timestamp,
}

/// The text, in lines that a mail program does not wrap.
pub(crate) fn lines(report: &UsageReportView<'_>, style: &OutputStyle) -> Vec<Line> {
    let width = style.width.unwrap_or(MAX_WIDTH).min(MAX_WIDTH);
    let style = &OutputStyle {
        width: Some(width),
        ..*style
    };
    let people = match report.group {
        Some(group) => format!("People of group {}", escaped(group, style.symbols)),
        None => "People".to_owned(),
    };
    let mut lines = vec![heading(report, style), Line::default()];
    lines.extend(use_lines(report, style));
    for (title, part) in [
        ("Look at", finding_lines(report, style)),
        (people.as_str(), people_lines(report, style)),
        ("Actions", action_lines(report.totals, style)),
        ("Faults and alerts", fault_lines(report, style)),
    ] {
        if !part.is_empty() {
            lines.push(Line::default());
            lines.push(Line::with_tone(title, Tone::Strong));
            lines.extend(part);
        }
    }
    let gaps = gap_lines(&report.summary.gaps, report.now, style);
    if !gaps.is_empty() {
        lines.push(Line::default());
        lines.extend(gaps);
    }
    lines
}

/// `GPUs of lab1 from Mon 2026-11-16 00:00 to Mon 2026-11-23 00:00`
fn heading(report: &UsageReportView<'_>, style: &OutputStyle) -> Line {
    let TimeSpan { since, until } = report.span;
    let [since, until] =
        [since, until].map(|moment| formatted(moment, "%a %Y-%m-%d %H:%M", style.zone));
    let host = escaped(report.host, style.symbols);
    let text = format!("GPUs of {host} from {since} to {until}");
    Line::with_tone(text, Tone::Strong).cut(style.width, style.symbols)
}

/// The use of all GPUs in this period and in the one before.
fn use_lines(report: &UsageReportView<'_>, style: &OutputStyle) -> Vec<Line> {
    let times = report.summary.total_times();
    if times.total_ms() == 0 {
        let texts = vec![
            "nothing is recorded in this period".to_owned(),
            "the last seven days: gpukillctl audit report --since 7d".to_owned(),
        ];
        return text_lines(texts, style);
    }
    let gpus = counted(report.summary.devices.len(), "GPU");
    let whole = whole_hours(times.total_ms());
    let idle = hours(times.held_ms);
    let mut texts = vec![
        format!("{gpus}, {whole} GPU-hours, {idle} of them held idle"),
        shares_text(times),
    ];
    if let Some(began) = first_record(report) {
        let began = formatted(began, "%a %Y-%m-%d %H:%M", style.zone);
        texts.push(format!("nothing is recorded before {began}"));
    }
    if let Some(before) = report.times_before {
        texts.push(format!("the period before: {}", shares_text(before)));
    }
    text_lines(texts, style)
}

/// When recording began, if that is late in the period: then the sums are not of a whole week. A
/// pause of the recording is named among the gaps.
fn first_record(report: &UsageReportView<'_>) -> Option<Timestamp> {
    let UsageReportView { summary, span, .. } = report;
    let whole = span.until.since(span.since);
    let is_late = summary.since.since(span.since) > whole / 100;
    let is_gap = summary.gaps.iter().any(|gap| gap.from <= span.since);
    (is_late && !is_gap).then_some(summary.since)
}

/// `busy 52 %, held idle 19 %, free 23 %, unknown 6 %`
fn shares_text(times: UsageTimes) -> String {
    let whole = times.total_ms();
    let parts =
        named_parts(times).map(|(name, part, _)| format!("{name} {}", percent(part, whole)));
    let parts: Vec<String> = parts.collect();
    parts.join(", ")
}

fn text_lines(texts: Vec<String>, style: &OutputStyle) -> Vec<Line> {
    let texts = texts.into_iter();
    let lines = texts.flat_map(|text| wrap(&text, 1, 3, style.width));
    let lines = lines.map(|text| match text.starts_with(' ') {
        true => Line::plain(text),
        false => Line::plain(format!(" {text}")),
    });
    lines
        .map(|line| line.cut(style.width, style.symbols))
        .collect()
}

/// The findings, numbered, each with the command that shows more.
fn finding_lines(report: &UsageReportView<'_>, style: &OutputStyle) -> Vec<Line> {
    /// A blank, a number, a dot and a blank.
    const INDENT: usize = 4;
    let period = (report.span.since, report.span.until);
    let mut lines = Vec::new();
    for (at, finding) in usage_findings(report.summary, report.totals, period)
        .iter()
        .enumerate()
    {
        let (text, command) = finding_texts(finding, report, style);
        for (part, text) in wrap(&text, INDENT, INDENT, style.width)
            .into_iter()
            .enumerate()
        {
            let line = match part {
                0 => Line::plain(format!(" {}. {text}", at + 1)),
                _ => Line::plain(text),
            };
            lines.push(line.cut(style.width, style.symbols));
        }
        // A command that is cut is wrong.
        let command = format!("{:INDENT$}gpukillctl {command}", "");
        lines.push(Line::with_tone(command, Tone::Faint));
    }
    lines
}

/// A finding in words, and the arguments of the command that shows more.
fn finding_texts(
    finding: &UsageFinding<'_>,
    report: &UsageReportView<'_>,
    style: &OutputStyle,
) -> (String, String) {
    let period = period_arguments(report.span, style);
    match finding {
        UsageFinding::DeviceEvents(device, events) => {
            let events: Vec<String> = events
                .iter()
                .map(|(what, times)| escaped(&times_text(what, *times), style.symbols))
                .collect();
            let name = device_name(device, report.summary, style.symbols);
            let selected = match device_index(device, report.summary) {
                Some(index) => index.to_string(),
                None => escaped(&device.0, style.symbols),
            };
            (
                format!("{name}: {}", events.join(", ")),
                format!("audit timeline --gpu {selected} {period}"),
            )
        }
        UsageFinding::FailedKills(count) => (
            format!("{} left a process behind", several(*count, "kill")),
            format!("audit actions --kind kill {period}"),
        ),
        UsageFinding::Unrecorded(total, longest) => {
            let [from, until] =
                [longest.from, longest.until].map(|at| formatted(at, "%a %H:%M", style.zone));
            let total = format_duration(*total);
            (
                format!("nothing was recorded for {total}, the longest from {from} to {until}"),
                format!("audit actions --kind started,stopped,booted {period}"),
            )
        }
        UsageFinding::IdleOwner(owner) => idle_owner_texts(owner, &period, style),
        UsageFinding::Alert((_, what), times) => (
            escaped(&times_text(what, *times), style.symbols),
            format!("audit actions --kind alert {period}"),
        ),
        UsageFinding::UnusedDevices(indices) => {
            let all = gpus(indices.iter().copied());
            let name = if indices.len() == 1 { "GPU" } else { "GPUs" };
            (
                format!("almost no process held {name} {all}"),
                format!("audit series --gpu {all} {period}"),
            )
        }
        UsageFinding::UnknownUse(unknown, held) => (
            format!(
                "it is unknown for {} of the held time whether the GPUs were busy",
                percent(*unknown, *held)
            ),
            "status".to_owned(),
        ),
    }
}

fn idle_owner_texts(owner: &OwnerTime, period: &str, style: &OutputStyle) -> (String, String) {
    let name = owner_text(owner, style.symbols);
    let idle = hours(owner.used.idle_ms);
    let known = owner.used.busy_ms.saturating_add(owner.used.idle_ms);
    let share = percent(owner.used.idle_ms, known);
    let text = format!("{name} held GPUs idle for {idle} GPU-hours, {share} of the time");
    let command = match owner.owner.as_ref().and_then(user_argument) {
        Some(user) => format!("audit --user {user} {period}"),
        None => format!("audit --summary {period}"),
    };
    (text, command)
}

/// The owner as an argument of `--user`: the name, or the number if the name would mean another
/// user, or several.
fn user_argument(owner: &Owner) -> Option<String> {
    let name = &owner.name;
    let is_name = name.parse::<u32>().is_err() && !name.contains(',') && name.trim() == name;
    let name = quote_for_shell(name).filter(|_| is_name);
    name.or_else(|| owner.uid.map(|uid| uid.to_string()))
}

/// The time range as arguments: whole days as dates, other times to the minute.
fn period_arguments(span: TimeSpan, style: &OutputStyle) -> String {
    let argument = |moment: Timestamp| match formatted(moment, "%H:%M", style.zone).as_str() {
        "00:00" => formatted(moment, "%Y-%m-%d", style.zone),
        _ => formatted(moment, "\"%Y-%m-%d %H:%M\"", style.zone),
    };
    format!(
        "--since {} --until {}",
        argument(span.since),
        argument(span.until)
    )
}

fn device_index(device: &DeviceId, summary: &AuditSummary) -> Option<u32> {
    let mut devices = summary.devices.iter();
    Some(devices.find(|it| it.device == *device)?.index)
}

/// `GPU 5`, or its id if the summary does not have it.
fn device_name(device: &DeviceId, summary: &AuditSummary, symbols: Symbols) -> String {
    match device_index(device, summary) {
        Some(index) => format!("GPU {index}"),
        None => escaped(&device.0, symbols),
    }
}

fn owner_text(owner: &OwnerTime, symbols: Symbols) -> String {
    match &owner.owner {
        Some(owner) => escaped(&owner.name, symbols),
        None => "an unknown owner".to_owned(),
    }
}

/// `XID 79`, `XID 79 (3 times)`
fn times_text(what: &str, times: u64) -> String {
    match times {
        0 | 1 => what.to_owned(),
        several => format!("{what} ({} times)", thousands(several)),
    }
}

/// `1 kill`, `1,204 kills`
fn several(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        several => format!("{} {one}s", thousands(several)),
    }
}

/// The use by each owner.
fn people_lines(report: &UsageReportView<'_>, style: &OutputStyle) -> Vec<Line> {
    let summary = report.summary;
    if summary.owners.is_empty() {
        // A group that is mistyped has no people either.
        let none = report
            .group
            .map(|_| "no process of this group used a GPU".to_owned());
        return text_lines(none.into_iter().collect(), style);
    }
    let mut table = Table::new(vec![
        Column::left("OWNER", WhenNarrow::Shrinks(12)),
        Column::right("GPU-HOURS", WhenNarrow::Stays),
        Column::right("BUSY", WhenNarrow::Stays),
        Column::right("IDLE", WhenNarrow::Stays),
        Column::right("IDLE SHARE", WhenNarrow::Goes(1)),
        Column::right("PEAK", WhenNarrow::Goes(2)),
    ]);
    for owner in summary.owners.iter().take(MAX_PEOPLE) {
        let used = &owner.used;
        let absent = || style.symbols.placeholder().to_owned();
        let known = used.busy_ms.saturating_add(used.idle_ms);
        let share = (known > 0).then(|| percent(used.idle_ms, known));
        table.push(Row::Cells(
            [
                owner_text(owner, style.symbols),
                hours(used.total_ms()),
                hours(used.busy_ms),
                hours(used.idle_ms),
                share.unwrap_or_else(absent),
                used.memory_max.map_or_else(absent, size),
            ]
            .map(Cell::plain)
            .into(),
        ));
    }
    let mut lines = table.lines(style);
    let omitted = usize::try_from(summary.more_owners)
        .unwrap_or(usize::MAX)
        .saturating_add(summary.owners.len().saturating_sub(MAX_PEOPLE));
    if omitted > 0 {
        lines.push(Line::plain(format!(" and {}", counted(omitted, "other"))));
    }
    lines
}

/// What was ended, by rule and by user, and starts of the daemon and the host.
fn action_lines(totals: &ActionTotals, style: &OutputStyle) -> Vec<Line> {
    let mut texts = Vec::new();
    for (by, kills) in [
        (" by rules", &totals.by_rule),
        (" by users", &totals.by_user),
        ("", &totals.hidden),
    ] {
        if !kills.is_empty() {
            texts.push(kills_text(by, kills, style.symbols));
        }
    }
    for (count, one, several) in [
        (totals.resets, "GPU reset", "GPU resets"),
        (totals.refused, "refused request", "refused requests"),
        (totals.boots, "start of the host", "starts of the host"),
        (totals.starts, "start of gpukilld", "starts of gpukilld"),
    ] {
        match count {
            0 => {}
            1 => texts.push(format!("1 {one}")),
            count => texts.push(format!("{} {several}", thousands(count))),
        }
    }
    text_lines(texts, style)
}

/// `4 kills by rules: default: idle (3), group ml: hours (1, 1 failed)`, where `by` is ` by rules`
fn kills_text(by: &str, kills: &BTreeMap<String, KillTotals>, symbols: Symbols) -> String {
    let sum = kills
        .values()
        .fold(0_u64, |sum, it| sum.saturating_add(it.all));
    let each: Vec<String> = kills
        .iter()
        .map(|(name, kills)| {
            let counts = [
                (kills.failed, "failed"),
                (kills.unknown, "of unknown result"),
            ];
            let counts = counts.into_iter().filter(|(count, _)| *count > 0);
            let counts = counts.map(|(count, what)| format!(", {} {what}", thousands(count)));
            let (name, counts) = (escaped(name, symbols), counts.collect::<String>());
            format!("{name} ({}{counts})", thousands(kills.all))
        })
        .collect();
    format!("{}{by}: {}", several(sum, "kill"), each.join(", "))
}

/// Events of devices, faults and alerts, the newest first.
fn fault_lines(report: &UsageReportView<'_>, style: &OutputStyle) -> Vec<Line> {
    let ActionTotals {
        device_events,
        faults,
        alerts,
        ..
    } = report.totals;
    let of_devices = device_events
        .iter()
        .map(|((device, what), event)| (device.as_ref(), what, event));
    // Their text names the device.
    let others = faults.iter().chain(alerts);
    let others = others.map(|((_, what), event)| (None, what, event));
    let mut all: Vec<_> = of_devices.chain(others).collect();
    all.sort_indirect_by_key(|(_, _, event)| Reverse(event.last));
    let omitted = all.len().saturating_sub(MAX_EVENTS);
    all.truncate(MAX_EVENTS);
    let texts = all.iter().map(|(device, what, event)| {
        let last = formatted(event.last, "%a %H:%M", style.zone);
        let what = escaped(&times_text(what, event.times), style.symbols);
        match device {
            Some(device) => {
                let name = device_name(device, report.summary, style.symbols);
                format!("{last}  {name}: {what}")
            }
            None => format!("{last}  {what}"),
        }
    });
    let mut texts: Vec<String> = texts.collect();
    if omitted > 0 {
        texts.push(format!("and {}", counted(omitted, "other")));
    }
    text_lines(texts, style)
}
