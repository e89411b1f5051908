//! Where in a text something stands, as editors count it.

use crate::collect::SortIndirect as _;
use crate::text::visible;
use serde::{Deserialize, Serialize};

/// A line and a column, both from 1. Columns are characters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// The lines of a text, so that many places in it are found quickly.
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Those of this text.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        let begins = [0].into_iter().chain(after).collect();
        Self { text, begins }
    }

    /// The place of a byte of the text; of one beyond its end, the end.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        let line = self.begins.partition_point(|begin| *begin <= offset);
        let begin = self.begins.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(begin..offset.min(self.text.len()));
        let column = before.map_or(1, |before| before.chars().count() + 1);
        Place { line, column }
    }
}

/// What is wrong with a text that is no TOML, by where it is: one for each line,
/// as one broken line often gives several errors, of which the first says enough.
#[must_use]
pub fn broken(errors: &[toml::de::Error], lines: &Lines<'_>) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = errors
        .iter()
        .map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let what = error.message().lines().next().unwrap_or("invalid TOML");
            let key = error.span().and_then(|span| lines.text.get(span));
            match key.filter(|key| is_twice(error) && !key.is_empty()) {
                Some(key) => (offset, format!("{what} {}", visible(key.as_bytes(), 80))),
                None => (offset, what.to_owned()),
            }
        })
        .collect();
    found.sort_indirect_by_key(|(offset, _)| *offset);
    found.dedup_by_key(|(offset, _)| lines.place(*offset).line);
    found
}

/// Whether nothing is wrong with a text but that keys are there twice: all the rest of it
/// was understood.
#[must_use]
pub fn are_only_twice(errors: &[toml::de::Error]) -> bool {
    errors.iter().all(is_twice)
}

fn is_twice(error: &toml::de::Error) -> bool {
    error.message().starts_with("duplicate key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_lines_and_characters() {
        let text = "a = \"é\" # x\n\nb = 1";
        let lines = Lines::of(text);
        let at = |what: &str| {
            let place = lines.place(text.find(what).unwrap());
            (place.line, place.column)
        };
        assert_eq!(at("a"), (1, 1));
        assert_eq!(at("# x"), (1, 9));
        assert_eq!(at("b"), (3, 1));
        assert_eq!(at("1"), (3, 5));
        assert_eq!(lines.place(9_999), Place { line: 3, column: 6 });
        assert_eq!(Lines::of("").place(0), Place { line: 1, column: 1 });
    }
}
