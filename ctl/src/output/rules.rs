//! Rules of either kind, for people: what an edit changes, what is wrong in a file and
//! what is odd, and their text.

use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, is_terminal};
use super::print;
use super::value::counted;
use crate::connect::Doing;
use crate::exit::Failure;
use gpukill_policy::guard;
use gpukill_policy::rogue;
use gpukill_proto::guard::EditReport;
use gpukill_proto::guard::edit::Warning;
use gpukill_proto::text::visible;
use std::fmt::Display;

/// What an edit changed, or would.
pub(crate) fn edited(report: &EditReport, doing: Doing, look: &Look) -> Vec<Line> {
    if is_nothing(report) {
        return vec![Line::plain("nothing changes: the rules say so already")];
    }
    let mut lines: Vec<Line> = report
        .difference
        .lines()
        .map(|line| {
            let tone = match line.as_bytes().first() {
                Some(b'+') => Tone::Strong,
                Some(b'-') => Tone::Faint,
                Some(_) | None => Tone::Plain,
            };
            Line::toned(shown(line, look.symbols), tone)
        })
        .collect();
    lines.push(match doing {
        Doing::Saying => Line::plain("nothing is changed yet"),
        Doing::Doing => in_force(report),
    });
    lines
}

/// Whether an edit neither writes anything nor puts anything in force.
pub(crate) fn is_nothing(report: &EditReport) -> bool {
    report.difference.is_empty() && report.before.as_ref() == Some(&report.after)
}

/// What holds now.
pub(crate) fn in_force(report: &EditReport) -> Line {
    Line::plain(format!("in force: revision {}", report.after.0))
}

/// What is wrong in a file, one mistake a line.
pub(crate) fn mistakes(file: &str, mistakes: &[impl Display], look: &Look) -> Vec<Line> {
    let file = shown(file, look.symbols);
    let mut lines: Vec<Line> = mistakes
        .iter()
        .flat_map(|mistake| {
            let text = shown(&mistake.to_string(), look.symbols);
            let texts = wrap(&text, 0, 2, look.width);
            texts
                .into_iter()
                .map(|text| Line::toned(text, Tone::Broken))
        })
        .collect();
    let count = counted(mistakes.len(), "mistake");
    lines.push(Line::plain(format!("{file}: {count}")));
    lines
}

/// That a file is right, what it comes to, and what is odd about it.
pub(crate) fn checked(file: &str, comes_to: &str, odd: &[Warning], look: &Look) -> Vec<Line> {
    let mut lines: Vec<Line> = odd
        .iter()
        .flat_map(|warning| {
            let text = shown(&warning.to_string(), look.symbols);
            let texts = wrap(&text, 0, 2, look.width);
            texts
                .into_iter()
                .map(|text| Line::toned(text, Tone::Doubtful))
        })
        .collect();
    let file = shown(file, look.symbols);
    let odd = match odd.len() {
        0 => "no mistake".to_owned(),
        several => format!("no mistake, {}", counted(several, "warning")),
    };
    lines.push(Line::plain(format!("{file}: {comes_to}; {odd}")));
    lines
}

/// A text of rules: as it is for a file or a program, and [`printable`] for a terminal.
pub(crate) fn print_rules(text: &str) -> Result<(), Failure> {
    if is_terminal() {
        print(&printable(text))
    } else {
        print(text)
    }
}

/// A text of rules for a terminal: what could steer it is made visible.
pub(super) fn printable(text: &str) -> String {
    let piece = |piece: &str| visible(piece.as_bytes(), usize::MAX);
    let line = |line: &str| {
        // As lines end elsewhere.
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

/// What the guard's rules come to: `3 rules, dry-run`
pub(crate) fn of_guard(rules: &guard::rules::Rules) -> String {
    format!("{}, {}", counted(rules.count(), "rule"), rules.mode.name())
}

/// What the rules on rogues come to: `2 patterns, 1 exception`
pub(crate) fn of_rogues(rules: &rogue::rules::Rules) -> String {
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
