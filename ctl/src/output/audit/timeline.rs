//! The screen of `audit timeline`: a line for each entry, for people.

use crate::exit::Error;
use crate::output::audit::actions::{KillSummary, caller_text, kill_outcome_text, summarize_kill};
use crate::output::audit::history::{Coverage, PagedEntry, TimeSpan, heading};
use crate::output::csv::{self, Header};
use crate::output::guard::{measured_text, step_text, subject_name};
use crate::output::style::{OutputStyle, Symbols};
use crate::output::text::{Line, Tone, escaped, width, wrap};
use crate::output::value::{formatted, gpus, thousands};
use gpukill_policy::health::xid_meaning;
use gpukill_policy::usage::label::label;
use gpukill_proto::audit::{
    ActionRecord, TimelineEnd, TimelineEntry, TimelineEvent, TimelineProcess, UsageState,
    UsageStretch,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{GuardMode, GuardRecord, GuardStep, RuleSource};
use gpukill_proto::json::TimelineDocument;
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// An entry, and what a table shows of a recorded kill.
pub(crate) struct TimelineItem {
    entry: TimelineEntry,
    kill: Option<KillTexts>,
}

/// The processes of a kill, and what it did.
struct KillTexts {
    summary: KillSummary,
    outcome: Option<String>,
}

impl TimelineItem {
    pub(crate) const fn new(entry: TimelineEntry) -> Self {
        Self { entry, kill: None }
    }
}

impl PagedEntry for TimelineItem {
    type Document = TimelineDocument;

    const NAME: &'static str = "entries";

    fn document(&self) -> TimelineDocument {
        TimelineDocument::from(&self.entry)
    }

    fn csv(documents: &[TimelineDocument], header: Header) -> Result<String, Error> {
        csv::timeline(documents, header)
    }

    fn trim_for_table(mut self) -> Self {
        if let TimelineEvent::Action(record) = &mut self.entry.event {
            self.kill = (record.kind == "kill").then(|| KillTexts {
                summary: summarize_kill(record).0,
                outcome: kill_outcome_text(record),
            });
            // Each may have hundreds of KiB.
            (record.plan, record.outcome) = (Reading::Unsupported, Reading::Unsupported);
        }
        self
    }

    fn lines(entries: &[Self], span: TimeSpan, _: &Coverage, style: &OutputStyle) -> Vec<Line> {
        lines(entries, span, style)
    }
}

/// The parts of one line.
struct TimelineRow {
    at: Timestamp,
    /// The end of a stretch or a gap.
    until: Option<Timestamp>,
    gpus: Vec<u32>,
    kind: String,
    tone: Tone,
    /// Not yet escaped.
    detail: String,
}

/// The heading, and a line for each entry; a line with the date before the first entry of another
/// day.
fn lines(items: &[TimelineItem], span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let kills = shown_kills(items, style.symbols);
    let rows = items.iter().filter(|item| !is_end_by(item, &kills));
    let rows: Vec<TimelineRow> = rows.filter_map(|item| row(item, style)).collect();
    let names = ["entry", "entries"];
    let mut lines = vec![
        heading(rows.len(), names, ", oldest first", span, style),
        Line::default(),
    ];
    let kind_width = rows.iter().filter(|row| row.until.is_none());
    let kind_width = kind_width.map(|row| width(&row.kind)).max().unwrap_or(0);
    let gpu_width = gpu_column_width(&rows);
    let mut day = day_text(span.since, style);
    for row in rows {
        let date = day_text(row.at, style);
        if date != day {
            lines.push(Line::with_tone(format!(" {date}"), Tone::Faint));
            day = date;
        }
        lines.extend(row_lines(
            &row,
            kind_width.max(KIND_WIDTH),
            gpu_width,
            style,
        ));
    }
    lines
}

/// The kills with a line that names their processes, by id.
fn shown_kills(items: &[TimelineItem], symbols: Symbols) -> BTreeSet<u64> {
    let kills = items.iter().filter_map(|item| match &item.entry.event {
        TimelineEvent::Action(record) => {
            item.kill.as_ref()?.summary.processes_text(symbols)?;
            Some(record.id)
        }
        TimelineEvent::Started(_)
        | TimelineEvent::Ended(..)
        | TimelineEvent::Stretch { .. }
        | TimelineEvent::Guard(_)
        | TimelineEvent::Finding(_)
        | TimelineEvent::Gap(_) => None,
    });
    kills.into_set()
}

/// Whether an entry is the end of a process by one of these kills, which says it already.
fn is_end_by(item: &TimelineItem, kills: &BTreeSet<u64>) -> bool {
    matches!(
        &item.entry.event,
        TimelineEvent::Ended(_, TimelineEnd::Killed(Some(action))) if kills.contains(action)
    )
}

/// The width of the column for kinds: `violation`.
const KIND_WIDTH: usize = 9;

/// The gap between columns.
const GAP: usize = 2;

/// The width of the column for GPUs; `None` if all entries are about one GPU.
fn gpu_column_width(rows: &[TimelineRow]) -> Option<usize> {
    let all = gpus(rows.iter().flat_map(|row| row.gpus.iter().copied()));
    let is_one = all.bytes().all(|it| it.is_ascii_digit());
    let widths = rows.iter().map(|row| gpu_text(row).len());
    widths.max().filter(|_| !is_one)
}

/// `GPU 0-3`, or nothing.
fn gpu_text(row: &TimelineRow) -> String {
    match gpus(row.gpus.iter().copied()) {
        gpus if gpus.is_empty() => gpus,
        gpus => format!("GPU {gpus}"),
    }
}

fn day_text(at: Timestamp, style: &OutputStyle) -> String {
    formatted(at, "%a %Y-%m-%d", style.zone)
}

fn row_lines(
    row: &TimelineRow,
    kind_width: usize,
    gpu_width: Option<usize>,
    style: &OutputStyle,
) -> Vec<Line> {
    /// `14:02:31`
    const TIME_WIDTH: usize = 8;
    let columns = TIME_WIDTH + GAP + kind_width;
    let mut line = Line::plain(" ");
    match row.until {
        None => {
            line.push(formatted(row.at, "%H:%M:%S", style.zone), Tone::Plain);
            line.pad(GAP);
            line.push(row.kind.as_str(), row.tone);
        }
        Some(until) => {
            let is_same_day = day_text(until, style) == day_text(row.at, style);
            let form = if is_same_day { "%H:%M" } else { "%a %H:%M" };
            let [from, until] = [(row.at, "%H:%M"), (until, form)]
                .map(|(at, form)| formatted(at, form, style.zone));
            line.push(format!("{from}-{until}"), Tone::Faint);
        }
    }
    line.pad((1 + columns).saturating_sub(line.width()) + GAP);
    if let Some(gpu_width) = gpu_width {
        let text = gpu_text(row);
        let padding = gpu_width.saturating_sub(text.len()) + GAP;
        line.push(text, Tone::Plain);
        line.pad(padding);
    }
    let indent = line.width();
    let tone = match row.until {
        None => Tone::Plain,
        Some(_) => row.tone,
    };
    let detail = escaped(&row.detail, style.symbols);
    let mut texts = wrap(&detail, indent, indent, style.width).into_iter();
    line.push(texts.next().unwrap_or_default(), tone);
    let rest = texts.map(|text| Line::with_tone(text, tone));
    std::iter::once(line)
        .chain(rest)
        .map(|line| line.trimmed().cut(style.width, style.symbols))
        .collect()
}

/// The line of an entry; `None` for an entry that others say better.
fn row(item: &TimelineItem, style: &OutputStyle) -> Option<TimelineRow> {
    let entry = &item.entry;
    let of_kind = |kind: &str, tone, detail: String| TimelineRow {
        at: entry.at,
        until: None,
        gpus: entry.gpus.clone(),
        kind: escaped(kind, style.symbols),
        tone,
        detail,
    };
    let of_span = |until, tone, detail: String| TimelineRow {
        until: Some(until),
        ..of_kind("", tone, detail)
    };
    Some(match &entry.event {
        TimelineEvent::Started(process) => {
            let place = process.job.as_ref().or(process.container.as_ref());
            let place = place.map_or_else(String::new, |place| format!(", {place}"));
            of_kind("started", Tone::Plain, process_text(process) + &place)
        }
        TimelineEvent::Ended(process, end) => {
            let (kind, tone, why) = end_text(*end);
            of_kind(kind, tone, process_text(process) + &why)
        }
        TimelineEvent::Stretch { pid, usage, .. } => {
            let (tone, text) = stretch_text(*pid, usage, style.symbols);
            of_span(usage.until, tone, text)
        }
        TimelineEvent::Gap(until) => {
            of_span(*until, Tone::Doubtful, "nothing was recorded".to_owned())
        }
        TimelineEvent::Guard(record) => {
            let (kind, tone, text) = decision_text(record, style)?;
            of_kind(kind, tone, text)
        }
        TimelineEvent::Action(record) => {
            let (kind, tone, text) = action_text(record, item.kill.as_ref(), style.symbols);
            of_kind(&kind, tone, text)
        }
        TimelineEvent::Finding(finding) => of_kind("rogue", Tone::Doubtful, finding_text(finding)),
    })
}

/// `bob 51002 python train.py`
fn process_text(process: &TimelineProcess) -> String {
    let owner = process.owner.as_ref().map(|owner| owner.name.as_str());
    let owner = owner.or(process.user.as_deref()).unwrap_or("?");
    let label = process.command.known().and_then(|command| label(command));
    let name = label.or_else(|| process.name.clone());
    format!("{owner} {} {}", process.pid, name.unwrap_or_default())
        .trim_end()
        .to_owned()
}

fn end_text(end: TimelineEnd) -> (&'static str, Tone, String) {
    match end {
        TimelineEnd::Exited => ("exited", Tone::Plain, String::new()),
        TimelineEnd::Released => ("released", Tone::Plain, String::new()),
        TimelineEnd::Killed(action) => {
            let action = action.map_or_else(String::new, |id| format!(" (action {id})"));
            ("killed", Tone::Broken, action)
        }
        TimelineEnd::Unobserved => {
            let why = ": ended while gpukilld did not run";
            ("gone", Tone::Doubtful, why.to_owned())
        }
        TimelineEnd::Rebooted => {
            let why = ": ended by a reboot of the host";
            ("gone", Tone::Doubtful, why.to_owned())
        }
    }
}

/// `51002 busy, util 61 % ▅▆▆▅▂`: not a share of the time, which other tables call busy.
fn stretch_text(pid: u32, usage: &UsageStretch, symbols: Symbols) -> (Tone, String) {
    let percent = usage.utilization;
    let percent = percent.map_or_else(String::new, |it| format!(", util {} %", it.0));
    let state = usage.state.name();
    match usage.state {
        UsageState::Busy => {
            let spark = sparkline(&usage.utilization_series, symbols);
            (Tone::Busy, format!("{pid} {state}{percent} {spark}"))
        }
        UsageState::Idle => (Tone::Doubtful, format!("{pid} {state}{percent}")),
        UsageState::Unknown => (Tone::Faint, format!("{pid} {state} whether busy")),
    }
}

/// Percentages as blocks, or as digits from 0 to 9.
fn sparkline(percentages: &[u8], symbols: Symbols) -> String {
    let levels = symbols.chart_levels();
    let level = |percent: &u8| {
        let at = usize::from((*percent).min(99)) * levels.len() / 100;
        levels.get(at).copied()
    };
    percentages.iter().filter_map(level).collect()
}

/// A decision in words; `None` for the outcome of a job that ended, which its kill states.
fn decision_text(
    record: &GuardRecord,
    style: &OutputStyle,
) -> Option<(&'static str, Tone, String)> {
    let clock = |at: Timestamp| {
        let is_same_day = day_text(at, style) == day_text(record.at, style);
        let form = if is_same_day { "%H:%M" } else { "%a %H:%M" };
        formatted(at, form, style.zone)
    };
    let evidence = &record.evidence;
    let rule = rule_text(record);
    let is_simulated = record.mode <= GuardMode::DryRun;
    Some(match &record.step {
        GuardStep::Violated => {
            let measured = measured_text(record.rule.kind, evidence);
            let measured = match measured.is_empty() {
                true => measured,
                false => format!(", {measured}"),
            };
            ("violation", Tone::Doubtful, rule + &measured)
        }
        GuardStep::Over => ("over", Tone::Plain, rule),
        GuardStep::Snoozed { until, left, .. } => {
            let until = clock(*until);
            (
                "snoozed",
                Tone::Plain,
                format!("{rule}, until {until}, {left} left"),
            )
        }
        GuardStep::Warned { .. } | GuardStep::Ended(_) | GuardStep::Outcome(_) if is_simulated => (
            "dry run",
            Tone::Faint,
            format!("{rule}: {}", step_text(record)),
        ),
        GuardStep::Warned { deadline, .. } => {
            let end = deadline.map_or_else(String::new, |deadline| {
                format!("; the job ends {} if nothing changes", clock(deadline))
            });
            ("warned", Tone::Doubtful, rule + &end)
        }
        GuardStep::Ended(victim) => {
            let job = format!("{}'s {}", victim.job.owner.name, victim.job.shown);
            match &victim.leave_to {
                Some(command) => ("left", Tone::Doubtful, format!("{rule}: {job}, {command}")),
                None => ("chosen", Tone::Broken, format!("{rule}: {job} is to end")),
            }
        }
        GuardStep::Outcome(outcome) if outcome.left == 0 && outcome.why.is_none() => return None,
        GuardStep::Outcome(_)
        | GuardStep::Exempt(_)
        | GuardStep::Outdated
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (
            "guard",
            Tone::Doubtful,
            format!("{rule}: {}", step_text(record)),
        ),
    })
}

/// `bob, default: idle`; `user bob: memory` names the person itself.
fn rule_text(record: &GuardRecord) -> String {
    let subject = subject_name(&record.subject, &record.evidence);
    let is_named = match &record.rule.source {
        RuleSource::User(name) => *name == subject,
        RuleSource::Group(name) => subject.strip_prefix("group ") == Some(name),
        RuleSource::Default | RuleSource::Gpu(_) | RuleSource::Time(_) | RuleSource::Rule(_) => {
            false
        }
    };
    match is_named {
        true => record.rule.to_string(),
        false => format!("{subject}, {}", record.rule),
    }
}

/// An action or an event in words.
fn action_text(
    record: &ActionRecord,
    kill: Option<&KillTexts>,
    symbols: Symbols,
) -> (String, Tone, String) {
    let what = record.what.as_deref().unwrap_or_default();
    let times = match record.times {
        0 | 1 => String::new(),
        times => format!(" ({} times)", thousands(times)),
    };
    let event = |kind: &str, tone, text: &str| (kind.to_owned(), tone, format!("{text}{times}"));
    match record.kind.as_str() {
        "kill" => kill_text(record, kill, symbols),
        "started" => event("gpukilld", Tone::Plain, &format!("started, version {what}")),
        "stopped" => event("gpukilld", Tone::Plain, "stopped"),
        "booted" => event("reboot", Tone::Doubtful, "the host was rebooted"),
        "xid" => event(&record.kind, Tone::Broken, &with_meaning(what)),
        "device" => event(&record.kind, Tone::Broken, what),
        "fault" => event("fault", Tone::Broken, what),
        "alert" => event("alert", Tone::Doubtful, what),
        "fault_over" | "alert_over" => event("over", Tone::Plain, fault_name(what)),
        "settings" => event("settings", Tone::Plain, &in_force_text("settings", what)),
        "rules" => event("rules", Tone::Plain, &in_force_text("rules", what)),
        "rogue_rules" => event("rules", Tone::Plain, &in_force_text("rogue rules", what)),
        kind => {
            let by = requester_text(record, symbols);
            let result = result_text(record).map_or_else(String::new, |it| format!(": {it}"));
            let kind = if kind == "rules_edit" { "edit" } else { kind };
            let by = format!("by {by}{times}");
            let text = [by.as_str(), what].join(": ");
            let text = text.trim_end_matches([':', ' ']);
            (kind.to_owned(), Tone::Plain, format!("{text}{result}"))
        }
    }
}

/// `XID 79: the GPU has fallen off the bus`
fn with_meaning(what: &str) -> String {
    let code = what
        .strip_prefix("XID ")
        .and_then(|code| code.parse::<u64>().ok());
    code.map_or_else(
        || what.to_owned(),
        |code| format!("{what}: {}", xid_meaning(code)),
    )
}

/// `new rules in force (revision 89651ac3)`: a timeline has changes only.
fn in_force_text(what: &str, revision: &str) -> String {
    /// Enough to tell revisions apart.
    const SHOWN: usize = 8;
    match revision {
        "built-in" => format!("built-in {what} in force"),
        revision => {
            let revision: String = revision.chars().take(SHOWN).collect();
            format!("new {what} in force (revision {revision})")
        }
    }
}

/// A fault without its details and its remedy, which its begin has: `GPU 5: lost (GPU is lost)`.
fn fault_name(what: &str) -> &str {
    let part = what.find(": ").map_or(0, |at| at + ": ".len());
    let rest = what.get(part..).unwrap_or_default();
    let ends = [": ", "; "].into_iter().filter_map(|mark| rest.find(mark));
    let end = ends.min().unwrap_or(rest.len());
    what.get(..part + end).unwrap_or(what)
}

/// `alice (action 812)`
fn requester_text(record: &ActionRecord, symbols: Symbols) -> String {
    let by = match record.guard_rule() {
        Some(_) => "guard".to_owned(),
        None => caller_text(record, symbols),
    };
    // Events have no id that `audit actions` shows as one of an action.
    match record.id % 2 {
        1 => format!("{by} (action {})", record.id),
        _ => by,
    }
}

/// The result and its reason; `None` if it is done, or for an event.
fn result_text(record: &ActionRecord) -> Option<String> {
    let result = record.result.as_deref().filter(|it| *it != "done");
    let why = record.why.as_deref();
    match (result, why) {
        (Some(result), Some(why)) => Some(format!("{result}: {why}")),
        (result, why) => result.or(why).map(ToOwned::to_owned),
    }
}

/// `51002 python of bob by guard (action 812): SIGTERM, 0.8 s; gave back 48.3 of 48.3 GiB`
fn kill_text(
    record: &ActionRecord,
    kill: Option<&KillTexts>,
    symbols: Symbols,
) -> (String, Tone, String) {
    let by = requester_text(record, symbols);
    let typed = record
        .what
        .as_deref()
        .filter(|_| record.guard_rule().is_none());
    let processes = kill.and_then(|it| it.summary.processes_text(symbols));
    let what = processes.or_else(|| typed.map(ToOwned::to_owned));
    let what = what.map_or_else(String::new, |what| what + " ");
    let outcome = kill.and_then(|it| it.outcome.clone());
    let parts: Vec<String> = outcome.into_iter().chain(result_text(record)).collect();
    let parts = match parts.is_empty() {
        true => String::new(),
        false => format!(": {}", parts.join("; ")),
    };
    let (kind, tone) = match (record.result.as_deref(), record.guard_rule()) {
        (Some("refused"), _) => ("refused", Tone::Doubtful),
        (_, Some(_)) => ("ended", Tone::Broken),
        (_, None) => ("kill", Tone::Broken),
    };
    (kind.to_owned(), tone, format!("{what}by {by}{parts}"))
}

/// `eve 60990 xmrig: crypto miner, critical`
fn finding_text(finding: &RogueFinding) -> String {
    let owner = finding
        .owner
        .as_ref()
        .map_or("?", |owner| owner.name.as_str());
    let name = finding.name.as_deref().unwrap_or_default();
    let process = format!("{owner} {} {name}", finding.process.pid);
    let worst = finding.verdicts.first();
    let worst = worst.map_or_else(String::new, |worst| {
        format!(": {}, {}", worst.threat.label(), worst.risk.name())
    });
    process.trim_end().to_owned() + &worst
}

#[cfg(test)]
mod tests {
    use super::fault_name;

    #[test]
    fn end_of_a_fault_has_no_remedy() {
        let cases = [
            (
                "GPU 5: lost (GPU is lost): needs a reset or a reboot",
                "GPU 5: lost (GPU is lost)",
            ),
            (
                "GPU 5: temperature at or above 85 °C",
                "GPU 5: temperature at or above 85 °C",
            ),
            (
                "backend nvidia 0000:1b:00.0: no answer; see nvidia-smi",
                "backend nvidia 0000:1b:00.0: no answer",
            ),
            ("a text without a part", "a text without a part"),
            ("", ""),
        ];
        for (what, name) in cases {
            assert_eq!(fault_name(what), name, "{what}");
        }
    }
}
