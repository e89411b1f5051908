//! Rules of both kinds, for people: the changes of an edit, the mistakes and lints of a file,
//! and the text.

use crate::args::EditOptions;
use crate::connect::Mode;
use crate::exit::Error;
use crate::output::print;
use crate::output::style::{OutputStyle, is_stdout_terminal};
use crate::output::text::{Line, Tone, escaped, escaped_lines, wrap};
use crate::output::value::counted;
use gpukill_policy::guard;
use gpukill_policy::rogue;
use gpukill_proto::guard::EditReport;
use gpukill_proto::guard::edit::Lint;
use gpukill_proto::rogue::RogueEdit;
use gpukill_proto::text::sanitize;
use std::fmt::Display;

/// How an edit is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EditView<'a> {
    /// Whether the edit was made.
    pub doing: Mode,
    /// Whether the difference of the file is shown.
    pub difference: Difference,
    /// What holds after the edit; empty where another line says it.
    pub statement: &'a str,
}

/// Whether the difference of the file is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    Hidden,
    Shown,
}

impl Difference {
    /// As the options of an edit say. A dry run is a question about the file.
    pub(crate) const fn from_options(how: &EditOptions) -> Self {
        match how.diff || how.dry_run {
            true => Self::Shown,
            false => Self::Hidden,
        }
    }
}

/// What an edit changed, or would change: one sentence, and the difference of the file where it
/// was asked for.
pub(crate) fn edit_lines(
    report: &EditReport,
    view: EditView<'_>,
    style: &OutputStyle,
) -> Vec<Line> {
    if is_no_change(report) {
        return vec![Line::plain("nothing changes: the rules say so already")];
    }
    let difference = match view.difference {
        Difference::Shown => report.difference.as_str(),
        Difference::Hidden => "",
    };
    let mut lines: Vec<Line> = difference
        .lines()
        .map(|line| {
            let tone = match line.as_bytes().first() {
                Some(b'+') => Tone::Strong,
                Some(b'-') => Tone::Faint,
                Some(_) | None => Tone::Plain,
            };
            Line::with_tone(escaped(line, style.symbols), tone)
        })
        .collect();
    let text = match (view.doing, view.statement) {
        (Mode::DryRun, "") => NOT_CHANGED.to_owned(),
        (Mode::DryRun, statement) => format!("{NOT_CHANGED}; after the edit: {statement}"),
        (Mode::Apply, statement) => statement.to_owned(),
    };
    let texts = wrap(&escaped(&text, style.symbols), 0, 2, style.width);
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    lines.extend(texts.map(Line::plain));
    lines
}

/// The answer to an edit that was not made.
const NOT_CHANGED: &str = "nothing is changed yet";

/// Whether an edit neither writes anything nor puts anything in force.
pub(crate) fn is_no_change(report: &EditReport) -> bool {
    report.difference.is_empty() && report.before.as_ref() == Some(&report.after)
}

pub(crate) fn mistake_lines(
    file: &str,
    mistakes: &[impl Display],
    style: &OutputStyle,
) -> Vec<Line> {
    let file = escaped(file, style.symbols);
    let mut lines: Vec<Line> = mistakes
        .iter()
        .flat_map(|mistake| escaped_lines(&mistake.to_string(), Tone::Broken, style))
        .collect();
    let count = counted(mistakes.len(), "mistake");
    lines.push(Line::plain(format!("{file}: {count}")));
    lines
}

/// The result for a valid file: its summary and its lints.
pub(crate) fn checked_lines(
    file: &str,
    summary: &str,
    lints: &[Lint],
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines: Vec<Line> = lints
        .iter()
        .flat_map(|warning| escaped_lines(&warning.to_string(), Tone::Doubtful, style))
        .collect();
    let file = escaped(file, style.symbols);
    let verdict = match lints.len() {
        0 => "no mistake".to_owned(),
        several => format!("no mistake, {}", counted(several, "warning")),
    };
    lines.push(Line::plain(format!("{file}: {summary}; {verdict}")));
    lines
}

/// Prints rules: unchanged to a file or a program, as [`escape_for_terminal`] to a terminal.
pub(crate) fn print_rules(text: &str) -> Result<(), Error> {
    if is_stdout_terminal() {
        print(&escape_for_terminal(text))
    } else {
        print(text)
    }
}

/// Rules for a terminal: control characters are made visible.
pub(in crate::output) fn escape_for_terminal(text: &str) -> String {
    let piece = |piece: &str| sanitize(piece.as_bytes(), usize::MAX);
    let line = |line: &str| {
        // Line ends of other systems.
        let (line, end) = match line.strip_suffix('\r') {
            Some(line) => (line, "\r"),
            None => (line, ""),
        };
        let pieces: Vec<String> = line.split('\t').map(piece).collect();
        pieces.join("\t") + end
    };
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}

/// The summary of the guard's rules: `3 rules, dry-run`
pub(crate) fn guard_summary(rules: &guard::rules::RuleSet) -> String {
    format!(
        "{}, {}",
        counted(rules.rule_count(), "rule"),
        rules.mode.name()
    )
}

/// What holds after an edit of the rogue rules.
pub(crate) fn rogue_statement(asked: &RogueEdit) -> String {
    match asked {
        RogueEdit::SetKey { path, value } if value.is_empty() => format!("{path} is not set"),
        RogueEdit::SetKey { .. } | RogueEdit::Replace(_) => asked.to_string(),
        RogueEdit::Allow(by, name) => format!("{} {name} is not reported", by.name()),
        RogueEdit::Disallow(by, name) => format!("{} {name} is reported again", by.name()),
    }
}

/// The summary of the rogue rules: `2 patterns, 1 exception`
pub(crate) fn rogue_summary(rules: &rogue::rules::RogueRules) -> String {
    let patterns = &rules.patterns;
    let lists = [
        patterns.arguments.len(),
        patterns.miners.len(),
        patterns.sha256.len(),
        patterns.ports.len(),
    ];
    format!(
        "{}, {}",
        counted(lists.iter().sum(), "pattern"),
        counted(rules.allowed.len(), "exception")
    )
}
