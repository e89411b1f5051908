//! The table of the entries of `audit actions`, for people.

mod ended;

use super::csv::{self, Header};
use super::history::{Entry, Span, heading};
use super::line::{Line, Tone, shown, width, wrap};
use super::look::{Look, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{self, date_and_clock, disk_size, thousands};
use crate::exit::Failure;
use ended::{Ended, Memory, ended, rule};
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::document::ActionDocument;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::duration;
use gpukill_proto::units::Bytes;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// What takes time, and so can be under way: of all else it is told when it is
/// over.
const ACTS: [&str; 6] = ["kill", "reset", "prune", "backup", "restore", "rules_edit"];

/// An entry, and what else a table tells of it.
pub(crate) struct Acted {
    record: ActionRecord,
    /// What its device is numbered now, where it is there.
    now: Option<u32>,
    /// For a table alone.
    told: Told,
}

/// What is told of a plan and of an outcome, each of which can have many KiB.
#[derive(Default)]
struct Told {
    ended: Ended,
    /// As they were numbered then.
    gpus: BTreeSet<u32>,
    of_the_store: Option<OfTheStore>,
}

impl Acted {
    /// `now` says how a device is numbered now.
    pub(crate) fn new(record: ActionRecord, now: Option<u32>) -> Self {
        Self {
            record,
            now,
            told: Told::default(),
        }
    }
}

impl Entry for Acted {
    type Document = ActionDocument;

    const NAME: &'static str = "actions";

    fn document(&self) -> ActionDocument {
        ActionDocument::from(&self.record)
    }

    fn csv(documents: &[ActionDocument], header: Header) -> Result<String, Failure> {
        csv::actions(documents, header)
    }

    fn for_a_table(self) -> Self {
        let (ended, gpus) = ended(&self.record);
        let told = Told {
            ended,
            gpus,
            of_the_store: of_the_store(&self.record),
        };
        let record = ActionRecord {
            plan: Reading::Unsupported,
            outcome: Reading::Unsupported,
            ..self.record
        };
        Self {
            record,
            told,
            ..self
        }
    }

    fn lines(entries: &[Self], span: Span, look: &Look) -> Vec<Line> {
        lines(entries, span, look)
    }
}

/// The table of entries, with its heading.
fn lines(entries: &[Acted], span: Span, look: &Look) -> Vec<Line> {
    let mut lines = vec![heading(entries.len(), ["entry", "entries"], span, look)];
    if entries.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    // `interrupted`, `partly in 1.2 s`; with the wait for memory beside it.
    let least = if is_narrow(look) { 16 } else { 29 };
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Stays),
        Column::left("GPU", WhenNarrow::Goes(1)),
        Column::left("WHAT", WhenNarrow::Shrinks(24)),
        Column::left("RESULT", WhenNarrow::Shrinks(least)),
    ]);
    for entry in entries {
        let narrow = is_narrow(look);
        let below =
            why_below(entry, look).or_else(|| Some(vec![memory(entry).filter(|_| narrow)?]));
        let result = result(entry, below.is_none(), look.symbols);
        let asked = asked(entry, look.symbols).filter(|_| is_below(look));
        table.push(Row::Cells(row(entry, result, look)));
        for text in asked.into_iter().chain(below.into_iter().flatten()) {
            table.push(Row::Sentence(vec![Cell::plain("")], Cell::plain(text)));
        }
    }
    lines.extend(table.lines(look));
    lines
}

/// With less than so many columns for all, few are left for the last.
const WIDE: usize = 100;

/// By what those are known who were ended, where they are told themselves: for which rule
/// of the guard, or what was typed besides their pids.
fn asked(entry: &Acted, symbols: Symbols) -> Option<String> {
    entry.told.ended.whom(symbols)?;
    if let Some(rule) = rule(&entry.record) {
        return Some(shown(rule, symbols));
    }
    let typed = entry.record.what.as_deref()?;
    let is_pids = typed.bytes().all(|it| it.is_ascii_digit() || it == b' ');
    (!is_pids).then(|| shown(typed, symbols))
}

fn is_narrow(look: &Look) -> bool {
    look.width.is_some_and(|most| most < WIDE)
}

/// Whether the rule or the selector stands below whom it was: beside them it would be cut.
fn is_below(look: &Look) -> bool {
    /// Room for both, and for the wait for memory.
    const WIDE_FOR_BOTH: usize = 140;
    look.width.is_some_and(|most| most < WIDE_FOR_BOTH)
}

/// Why it was refused, or is not known, on lines below its row: where it would be
/// cut beside it.
fn why_below(entry: &Acted, look: &Look) -> Option<Vec<String>> {
    /// A blank, the moment and a gap.
    const BEFORE: usize = 22;
    /// So much is left of many.
    const SHORT: usize = 40;
    let why = shown(&why(entry)?, look.symbols);
    let most = look.width?;
    let is_cut = is_narrow(look) || width(&why) > SHORT;
    is_cut.then(|| wrap(&why, 0, 0, Some(most.saturating_sub(BEFORE))))
}

fn row(entry: &Acted, result: Cell, look: &Look) -> Vec<Cell> {
    let symbols = look.symbols;
    vec![
        Cell::plain(date_and_clock(entry.record.at, look)),
        Cell::plain(who(&entry.record, symbols)),
        Cell::plain(device(entry, symbols)),
        Cell::plain(what(entry, look)),
        result,
    ]
}

fn who(record: &ActionRecord, symbols: Symbols) -> String {
    if rule(record).is_some() {
        return "guard".to_owned();
    }
    match (&record.user, record.uid) {
        (Some(user), _) => shown(user, symbols),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => symbols.none().to_owned(),
    }
}

/// The number of its GPU, as `--gpu` takes it. Of a GPU that is gone as much of its name
/// as tells it from others: a PCI address is no longer.
fn device(entry: &Acted, symbols: Symbols) -> String {
    const ENOUGH: usize = 12;
    if !entry.told.gpus.is_empty() {
        return value::gpus(entry.told.gpus.iter().copied());
    }
    match (entry.now, &entry.record.device) {
        (Some(index), _) => index.to_string(),
        (None, Some(device)) => {
            let beginning: String = device.0.chars().take(ENOUGH).collect();
            shown(&beginning, symbols)
        }
        (None, None) => symbols.none().to_owned(),
    }
}

fn what(entry: &Acted, look: &Look) -> String {
    let (record, symbols) = (&entry.record, look.symbols);
    if let Some(whom) = entry.told.ended.whom(symbols) {
        return match asked(entry, symbols).filter(|_| !is_below(look)) {
            Some(asked) => format!("kill {whom}: {asked}"),
            None => format!("kill {whom}"),
        };
    }
    let mut text = match record.kind.as_str() {
        // They are named by what they come to.
        "settings" => "settings in force:".to_owned(),
        "rules" => "rules in force: revision".to_owned(),
        "rogue_rules" => "rules on rogues in force: revision".to_owned(),
        kind => shown(kind, symbols),
    };
    // `xid XID 79` says nothing that `XID 79` does not.
    if let Some(what) = &record.what {
        let what = shown(what, symbols);
        let begins_with_it = what
            .get(..text.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(&text));
        if begins_with_it {
            text = what;
        } else if !what.is_empty() {
            text = format!("{text} {what}");
        }
    }
    if let Some(bytes) = entry.told.of_the_store.as_ref().and_then(|it| it.bytes) {
        text = format!("{text} of {}", disk_size(Bytes(bytes)));
    }
    if record.times > 1 {
        text.push_str(&format!(" ({} times)", thousands(record.times)));
    }
    text
}

fn result(entry: &Acted, with_more: bool, symbols: Symbols) -> Cell {
    let record = &entry.record;
    let Some(word) = &record.word else {
        let is_under_way = record.finished_at.is_none() && ACTS.contains(&record.kind.as_str());
        return if is_under_way {
            Cell::plain("under way")
        } else {
            Cell::plain(symbols.none())
        };
    };
    let mut text = shown(word, symbols);
    if let Some(why) = why(entry) {
        if with_more {
            text.push_str(": ");
            text.push_str(&shown(&why, symbols));
        }
    } else if let Some(length) = took(entry) {
        text.push_str(" in ");
        text.push_str(&tenths(length));
        if let Some(memory) = memory(entry).filter(|_| with_more) {
            text.push_str(", ");
            text.push_str(&memory);
        }
    }
    let tone = match word.as_str() {
        "done" => Tone::Plain,
        "failed" => Tone::Broken,
        // Partly done, refused, or not known; a word of tomorrow is worth a look.
        _ => Tone::Doubtful,
    };
    Cell::toned(text, tone)
}

/// Why it was refused, failed or is not known.
fn why(entry: &Acted) -> Option<String> {
    let why = entry.record.why.clone();
    why.or_else(|| entry.told.of_the_store.as_ref()?.why.clone())
}

/// What came of acts on the store as a whole: of others it is longer, and said in other
/// words.
#[derive(Deserialize)]
struct OfTheStore {
    /// How long a copy is.
    bytes: Option<u64>,
    why: Option<String>,
}

fn of_the_store(record: &ActionRecord) -> Option<OfTheStore> {
    let is_of_the_store = ["prune", "backup", "restore"].contains(&record.kind.as_str());
    let outcome = record.outcome.known().filter(|_| is_of_the_store)?;
    serde_json::from_str(outcome).ok()
}

/// How long it took; of a kill without the wait for memory, which [`memory`] tells.
fn took(entry: &Acted) -> Option<Duration> {
    let length = length(&entry.record)?;
    Some(entry.told.ended.took.map_or(length, |it| it.ending))
}

/// `memory +9.2 s`: that it came back late, or did not.
fn memory(entry: &Acted) -> Option<String> {
    const LATE: Duration = Duration::from_secs(1);
    length(&entry.record)?;
    match entry.told.ended.took?.memory {
        Memory::Back(after) if after >= LATE => Some(format!("memory +{}", tenths(after))),
        Memory::None | Memory::Back(_) => None,
        Memory::Missing => Some("memory not back".to_owned()),
    }
}

/// How long it took; of a refusal, or of many that are counted together, that is no
/// length.
fn length(record: &ActionRecord) -> Option<Duration> {
    let length = record.finished_at?.since(record.at);
    let is_one = record.times <= 1 && record.word.as_deref() != Some("refused");
    is_one.then_some(length)
}

/// A length with tenths of seconds while it is short.
fn tenths(length: Duration) -> String {
    if length < Duration::from_secs(10) {
        format!("{:.1} s", length.as_secs_f64())
    } else {
        duration(length)
    }
}
