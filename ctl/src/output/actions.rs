//! The table of the entries of `audit actions`, for people.

mod by_guard;

use super::history::{Span, heading};
use super::line::{Line, Tone, shown, width, wrap};
use super::look::{Look, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{date_and_clock, disk_size, thousands};
use by_guard::end_by_guard;
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::text::duration;
use gpukill_proto::units::Bytes;
use serde::Deserialize;
use std::time::Duration;

/// What takes time, and so can be under way: of all else it is told when it is
/// over.
const ACTS: [&str; 6] = ["kill", "reset", "prune", "backup", "restore", "rules_edit"];

/// The table of entries, with its heading.
pub(super) fn lines(records: &[ActionRecord], span: Span, look: &Look) -> Vec<Line> {
    let mut lines = vec![heading(records.len(), ["entry", "entries"], span, look)];
    if records.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    let mut table = Table::new(vec![
        Column::left("WHEN", WhenNarrow::Stays),
        Column::left("WHO", WhenNarrow::Stays),
        Column::left("GPU", WhenNarrow::Goes(1)),
        Column::left("WHAT", WhenNarrow::Shrinks(24)),
        Column::left("RESULT", WhenNarrow::Shrinks(12)),
    ]);
    for record in records {
        let below = why_below(record, look);
        let result = result(record, below.is_none(), look.symbols);
        let rule = rule_below(record, look);
        table.push(Row::Cells(row(record, result, look)));
        for text in rule.into_iter().chain(below.into_iter().flatten()) {
            table.push(Row::Sentence(vec![Cell::plain("")], Cell::plain(text)));
        }
    }
    lines.extend(table.lines(look));
    lines
}

/// With less than so many columns for all, few are left for the last.
const WIDE: usize = 100;

/// For which rule the guard ended somebody, below its row: where it would be cut beside
/// whom it ended.
fn rule_below(record: &ActionRecord, look: &Look) -> Option<String> {
    let end = end_by_guard(record)?;
    is_narrow(look).then(|| end.rule(look.symbols))
}

fn is_narrow(look: &Look) -> bool {
    look.width.is_some_and(|most| most < WIDE)
}

/// Why it was refused, or is not known, on lines below its row: where it would be
/// cut beside it.
fn why_below(record: &ActionRecord, look: &Look) -> Option<Vec<String>> {
    /// A blank, the moment and a gap.
    const BEFORE: usize = 22;
    /// So much is left of many.
    const SHORT: usize = 40;
    let why = shown(&why(record)?, look.symbols);
    let most = look.width?;
    let is_cut = is_narrow(look) || width(&why) > SHORT;
    is_cut.then(|| wrap(&why, 0, 0, Some(most.saturating_sub(BEFORE))))
}

fn row(record: &ActionRecord, result: Cell, look: &Look) -> Vec<Cell> {
    let symbols = look.symbols;
    vec![
        Cell::plain(date_and_clock(record.at, look)),
        Cell::plain(who(record, symbols)),
        Cell::plain(device(record, symbols)),
        Cell::plain(what(record, look)),
        result,
    ]
}

fn who(record: &ActionRecord, symbols: Symbols) -> String {
    if end_by_guard(record).is_some() {
        return "guard".to_owned();
    }
    match (&record.user, record.uid) {
        (Some(user), _) => shown(user, symbols),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => symbols.none().to_owned(),
    }
}

/// As much of the device's name as tells it from others, and as `--gpu` takes: a
/// PCI address is no longer.
fn device(record: &ActionRecord, symbols: Symbols) -> String {
    const ENOUGH: usize = 12;
    match &record.device {
        Some(device) => {
            let beginning: String = device.0.chars().take(ENOUGH).collect();
            shown(&beginning, symbols)
        }
        None => symbols.none().to_owned(),
    }
}

fn what(record: &ActionRecord, look: &Look) -> String {
    let symbols = look.symbols;
    if let Some(end) = end_by_guard(record) {
        return match is_narrow(look) {
            true => end.whom(symbols),
            false => format!("{}: {}", end.whom(symbols), end.rule(symbols)),
        };
    }
    let mut text = shown(&record.kind, symbols);
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
    if let Some(bytes) = told(record).and_then(|it| it.bytes) {
        text = format!("{text} of {}", disk_size(Bytes(bytes)));
    }
    if record.times > 1 {
        text.push_str(&format!(" ({} times)", thousands(record.times)));
    }
    text
}

fn result(record: &ActionRecord, with_why: bool, symbols: Symbols) -> Cell {
    let Some(word) = &record.word else {
        let is_under_way = record.finished_at.is_none() && ACTS.contains(&record.kind.as_str());
        return if is_under_way {
            Cell::plain("under way")
        } else {
            Cell::plain(symbols.none())
        };
    };
    let mut text = shown(word, symbols);
    if let Some(why) = why(record) {
        if with_why {
            text.push_str(": ");
            text.push_str(&shown(&why, symbols));
        }
    } else if let Some(length) = length(record) {
        text.push_str(" in ");
        text.push_str(&length);
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
fn why(record: &ActionRecord) -> Option<String> {
    record.why.clone().or_else(|| told(record)?.why)
}

/// What came of acts on the store as a whole.
#[derive(Deserialize)]
struct Told {
    /// How long a copy is.
    bytes: Option<u64>,
    why: Option<String>,
}

fn told(record: &ActionRecord) -> Option<Told> {
    let outcome = record.outcome.known().filter(|_| is_of_the_store(record))?;
    serde_json::from_str(outcome).ok()
}

/// Whether it is an act on the store as a whole: what came of others is longer, and
/// said in other words.
pub(super) fn is_of_the_store(record: &ActionRecord) -> bool {
    ["prune", "backup", "restore"].contains(&record.kind.as_str())
}

/// How long it took; of a refusal, or of many that are counted together, that is no
/// length.
fn length(record: &ActionRecord) -> Option<String> {
    let length = record.finished_at?.since(record.at);
    let text = if length < Duration::from_secs(10) {
        format!("{:.1} s", length.as_secs_f64())
    } else {
        duration(length)
    };
    let is_one = record.times <= 1 && record.word.as_deref() != Some("refused");
    is_one.then_some(text)
}
