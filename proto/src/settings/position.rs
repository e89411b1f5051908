//! Positions in a text as editors count them, and syntax errors of TOML by position.

use crate::collect::SortIndirect as _;
use crate::text::sanitize;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeTable;

/// A line and a column, both from 1. Columns are characters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct TextPosition {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// The line starts of a text, to find many positions quickly.
#[derive(Debug, Clone)]
pub struct LineIndex<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    /// The index of a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        let begins = [0].into_iter().chain(after).collect();
        Self {
            text,
            line_starts: begins,
        }
    }

    /// The position of a byte offset; the end of the text for an offset beyond it.
    #[must_use]
    pub fn position(&self, offset: usize) -> TextPosition {
        let line = self.line_starts.partition_point(|begin| *begin <= offset);
        let begin = self
            .line_starts
            .get(line.wrapping_sub(1))
            .copied()
            .unwrap_or(0);
        let before = self.text.get(begin..offset.min(self.text.len()));
        let column = before.map_or(1, |before| before.chars().count() + 1);
        TextPosition { line, column }
    }
}

/// A TOML text, as far as it could be parsed.
pub struct ParsedText<'a> {
    /// The tables and values with their offsets.
    pub table: Spanned<DeTable<'a>>,
    /// The positions in the text.
    pub lines: LineIndex<'a>,
    /// The syntax errors with their byte offsets: one for each line, because one broken line often
    /// gives several errors, and the first says enough.
    pub errors: Vec<(usize, String)>,
    /// Whether the whole text was parsed: there are no errors but duplicate keys. Otherwise other
    /// mistakes cannot be found.
    pub is_complete: bool,
}

impl<'a> ParsedText<'a> {
    /// Parses a text.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let lines = LineIndex::new(text);
        Self {
            table,
            errors: syntax_errors(&errors, &lines),
            is_complete: errors.iter().all(is_duplicate_key),
            lines,
        }
    }
}

fn syntax_errors(errors: &[toml::de::Error], lines: &LineIndex<'_>) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = errors
        .iter()
        .map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let what = error.message().lines().next().unwrap_or("invalid TOML");
            let key = error.span().and_then(|span| lines.text.get(span));
            match key.filter(|key| is_duplicate_key(error) && !key.is_empty()) {
                Some(key) => (offset, format!("{what} {}", sanitize(key.as_bytes(), 80))),
                None => (offset, what.to_owned()),
            }
        })
        .collect();
    found.sort_indirect_by_key(|(offset, _)| *offset);
    found.dedup_by_key(|(offset, _)| lines.position(*offset).line);
    found
}

fn is_duplicate_key(error: &toml::de::Error) -> bool {
    error.message().starts_with("duplicate key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_lines_and_characters() {
        let text = "a = \"é\" # x\n\nb = 1";
        let lines = LineIndex::new(text);
        let at = |what: &str| {
            let position = lines.position(text.find(what).unwrap());
            (position.line, position.column)
        };
        assert_eq!(at("a"), (1, 1));
        assert_eq!(at("# x"), (1, 9));
        assert_eq!(at("b"), (3, 1));
        assert_eq!(at("1"), (3, 5));
        assert_eq!(lines.position(9_999), TextPosition { line: 3, column: 6 });
        assert_eq!(
            LineIndex::new("").position(0),
            TextPosition { line: 1, column: 1 }
        );
    }
}
