//! The table of `audit actions`, for people.

mod kill_summary;

use crate::exit::Error;
use crate::output::audit::history::{Coverage, PagedEntry, TimeSpan, heading};
use crate::output::csv::{self, Header};
use crate::output::style::{OutputStyle, Symbols};
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, width, wrap};
use crate::output::value::{self, date_and_time, disk_size, short_duration, thousands};
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::json::ActionDocument;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use kill_summary::MemoryRelease;
pub(in crate::output) use kill_summary::{KillSummary, kill_outcome_text, summarize_kill};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// Kinds of actions that take time and so can be under way. All others are recorded when they
/// are over.
const LONG_ACTIONS: [&str; 6] = ["kill", "reset", "prune", "backup", "restore", "rules_edit"];

/// An entry and what else a table shows of it.
pub(crate) struct ActionEntry {
    record: ActionRecord,
    /// The current index of its device, if the device exists.
    current_index: Option<u32>,
    /// Only for tables.
    details: ActionDetails,
}

/// The part of the plan and of the outcome that a table needs; each can have many KiB.
#[derive(Default)]
struct ActionDetails {
    ended: KillSummary,
    /// The indices at that time.
    gpus: BTreeSet<u32>,
    store: Option<StoreOutcome>,
}

impl ActionEntry {
    /// `now` is the current index of the device.
    pub(crate) fn new(record: ActionRecord, now: Option<u32>) -> Self {
        Self {
            record,
            current_index: now,
            details: ActionDetails::default(),
        }
    }
}

impl PagedEntry for ActionEntry {
    type Document = ActionDocument;

    const NAME: &'static str = "actions";

    fn document(&self) -> ActionDocument {
        ActionDocument::from(&self.record)
    }

    fn csv(documents: &[ActionDocument], header: Header) -> Result<String, Error> {
        csv::actions(documents, header)
    }

    fn trim_for_table(self) -> Self {
        let (ended, gpus) = summarize_kill(&self.record);
        let details = ActionDetails {
            ended,
            gpus,
            store: store_outcome(&self.record),
        };
        let record = ActionRecord {
            plan: Reading::Unsupported,
            outcome: Reading::Unsupported,
            ..self.record
        };
        Self {
            record,
            details,
            ..self
        }
    }

    fn lines(entries: &[Self], span: TimeSpan, _: &Coverage, style: &OutputStyle) -> Vec<Line> {
        lines(entries, span, style)
    }
}

/// The table of entries, with its heading.
fn lines(entries: &[ActionEntry], span: TimeSpan, style: &OutputStyle) -> Vec<Line> {
    let mut lines = vec![heading(
        entries.len(),
        ["entry", "entries"],
        ", newest first",
        span,
        style,
    )];
    if entries.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    // `interrupted`, `partly in 1.2 s`; when wide, the wait for memory follows.
    let min_width = if is_narrow(style) { 16 } else { 29 };
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Stays),
        Column::left("GPU", WhenNarrow::Goes(1)),
        Column::left("WHAT", WhenNarrow::Shrinks(24)),
        Column::left("RESULT", WhenNarrow::Shrinks(min_width)),
    ]);
    for entry in entries {
        let narrow = is_narrow(style);
        let below = reason_lines(entry, style)
            .or_else(|| Some(vec![memory_text(entry).filter(|_| narrow)?]));
        let result = result_cell(entry, below.is_none(), style.symbols);
        let asked = selection_text(entry, style.symbols).filter(|_| has_selection_line(style));
        table.push(Row::Cells(row(entry, result, style)));
        for text in asked.into_iter().chain(below.into_iter().flatten()) {
            table.push(Row::Spanning(vec![Cell::plain("")], Cell::plain(text)));
        }
    }
    lines.extend(table.lines(style));
    lines
}

/// With fewer columns in total, few are left for the last column.
const WIDE_COLUMNS: usize = 100;

/// How the ended processes were selected, where they are named themselves: the rule of the
/// guard, or what was typed other than PIDs.
fn selection_text(entry: &ActionEntry, symbols: Symbols) -> Option<String> {
    entry.details.ended.processes_text(symbols)?;
    if let Some(rule) = entry.record.guard_rule() {
        return Some(escaped(rule, symbols));
    }
    let typed = entry.record.what.as_deref()?;
    let is_pids = typed.bytes().all(|it| it.is_ascii_digit() || it == b' ');
    (!is_pids).then(|| escaped(typed, symbols))
}

fn is_narrow(style: &OutputStyle) -> bool {
    style.width.is_some_and(|width| width < WIDE_COLUMNS)
}

/// Whether the rule or the selector gets a line of its own; in the row it would be cut.
fn has_selection_line(style: &OutputStyle) -> bool {
    /// Enough for both, and for the wait for memory.
    const WIDE_FOR_BOTH: usize = 140;
    style.width.is_some_and(|width| width < WIDE_FOR_BOTH)
}

/// The reason of a refusal or of an unknown result on lines below the row, when the row would
/// cut it.
fn reason_lines(entry: &ActionEntry, style: &OutputStyle) -> Option<Vec<String>> {
    /// A blank, the time and a gap.
    const BEFORE: usize = 22;
    /// The width that remains for the reason when the table is wide.
    const SHORT: usize = 40;
    let why = escaped(&reason(entry)?, style.symbols);
    let max_width = style.width?;
    let is_cut = is_narrow(style) || width(&why) > SHORT;
    is_cut.then(|| wrap(&why, 0, 0, Some(max_width.saturating_sub(BEFORE))))
}

fn row(entry: &ActionEntry, result: Cell, style: &OutputStyle) -> Vec<Cell> {
    let symbols = style.symbols;
    vec![
        Cell::plain(date_and_time(entry.record.at, style)),
        Cell::plain(caller_text(&entry.record, symbols)),
        Cell::plain(device_text(entry, symbols)),
        Cell::plain(action_text(entry, style)),
        result,
    ]
}

pub(in crate::output) fn caller_text(record: &ActionRecord, symbols: Symbols) -> String {
    if record.guard_rule().is_some() {
        return "guard".to_owned();
    }
    match (&record.user, record.uid) {
        (Some(user), _) => escaped(user, symbols),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => symbols.placeholder().to_owned(),
    }
}

/// The GPU's index, as `--gpu` takes it. For a GPU that is gone, enough of its id to identify
/// it: a PCI address is no longer.
fn device_text(entry: &ActionEntry, symbols: Symbols) -> String {
    const ENOUGH: usize = 12;
    if !entry.details.gpus.is_empty() {
        return value::gpus(entry.details.gpus.iter().copied());
    }
    match (entry.current_index, &entry.record.device) {
        (Some(index), _) => index.to_string(),
        (None, Some(device)) => {
            let beginning: String = device.0.chars().take(ENOUGH).collect();
            escaped(&beginning, symbols)
        }
        (None, None) => symbols.placeholder().to_owned(),
    }
}

fn action_text(entry: &ActionEntry, style: &OutputStyle) -> String {
    let (record, symbols) = (&entry.record, style.symbols);
    if let Some(processes) = entry.details.ended.processes_text(symbols) {
        return match selection_text(entry, symbols).filter(|_| !has_selection_line(style)) {
            Some(asked) => format!("kill {processes}: {asked}"),
            None => format!("kill {processes}"),
        };
    }
    let mut text = match record.kind.as_str() {
        // These kinds are named by their result.
        "settings" => "settings in force:".to_owned(),
        "rules" => "rules in force: revision".to_owned(),
        "rogue_rules" => "rogue rules in force: revision".to_owned(),
        kind => escaped(kind, symbols),
    };
    // `xid XID 79` says no more than `XID 79`.
    if let Some(what) = &record.what {
        let what = escaped(what, symbols);
        let begins_with_it = what
            .get(..text.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(&text));
        if begins_with_it {
            text = what;
        } else if !what.is_empty() {
            text = format!("{text} {what}");
        }
    }
    if let Some(bytes) = entry.details.store.as_ref().and_then(|it| it.bytes) {
        text = format!("{text} of {}", disk_size(Bytes(bytes)));
    }
    if record.times > 1 {
        text.push_str(&format!(" ({} times)", thousands(record.times)));
    }
    text
}

fn result_cell(entry: &ActionEntry, with_more: bool, symbols: Symbols) -> Cell {
    let record = &entry.record;
    let Some(word) = &record.result else {
        let is_under_way =
            record.finished_at.is_none() && LONG_ACTIONS.contains(&record.kind.as_str());
        return if is_under_way {
            Cell::plain("under way")
        } else {
            Cell::plain(symbols.placeholder())
        };
    };
    let mut text = escaped(word, symbols);
    if let Some(why) = reason(entry) {
        if with_more {
            text.push_str(": ");
            text.push_str(&escaped(&why, symbols));
        }
    } else if let Some(length) = action_duration(entry) {
        text.push_str(" in ");
        text.push_str(&short_duration(length));
        if let Some(memory) = memory_text(entry).filter(|_| with_more) {
            text.push_str(", ");
            text.push_str(&memory);
        }
    }
    let tone = match word.as_str() {
        "done" => Tone::Plain,
        "failed" => Tone::Broken,
        // Partly done, refused or unknown. An outcome that this client does not know is doubtful
        // too.
        _ => Tone::Doubtful,
    };
    Cell::with_tone(text, tone)
}

/// Why the action was refused, failed or has an unknown result.
fn reason(entry: &ActionEntry) -> Option<String> {
    let why = entry.record.why.clone();
    why.or_else(|| entry.details.store.as_ref()?.why.clone())
}

/// The outcome of an action on the whole store. Outcomes of other actions are longer and have
/// other fields.
#[derive(Deserialize)]
struct StoreOutcome {
    /// The length of a copy.
    bytes: Option<u64>,
    why: Option<String>,
}

fn store_outcome(record: &ActionRecord) -> Option<StoreOutcome> {
    let is_of_the_store = ["prune", "backup", "restore"].contains(&record.kind.as_str());
    let outcome = record.outcome.known().filter(|_| is_of_the_store)?;
    serde_json::from_str(outcome).ok()
}

/// The duration; for a kill without the wait for memory, which [`memory_text`] shows.
fn action_duration(entry: &ActionEntry) -> Option<Duration> {
    let length = recorded_duration(&entry.record)?;
    Some(entry.details.ended.duration.map_or(length, |it| it.ending))
}

/// `memory +9.2 s`: memory came back late; or it did not come back.
fn memory_text(entry: &ActionEntry) -> Option<String> {
    const LATE: Duration = Duration::from_secs(1);
    recorded_duration(&entry.record)?;
    match entry.details.ended.duration?.memory {
        MemoryRelease::Returned(after) if after >= LATE => {
            Some(format!("memory +{}", short_duration(after)))
        }
        MemoryRelease::None | MemoryRelease::Returned(_) => None,
        MemoryRelease::Missing => Some("memory not back".to_owned()),
    }
}

/// The duration of the action. A refusal, or several actions counted together, have none.
fn recorded_duration(record: &ActionRecord) -> Option<Duration> {
    let length = record.finished_at?.since(record.at);
    let is_one = record.times <= 1 && record.result.as_deref() != Some("refused");
    is_one.then_some(length)
}
