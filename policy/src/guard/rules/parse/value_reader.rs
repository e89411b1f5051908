//! One value with its position, and the mistakes found so far.

use super::field::{self, TableKeys};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::RuleMistake;
use gpukill_proto::settings::closest_name;
use gpukill_proto::settings::position::{LineIndex, TextPosition};
use gpukill_proto::text::sanitize;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The maximum number of mistakes that are reported for a file.
pub const MAX_MISTAKES: usize = 1_000;

/// The maximum number of bytes that are shown of a wrong value.
const MAX_SHOWN_BYTES: usize = 80;

/// The position of each table and key of a file, by its path.
pub type KeyPositions = BTreeMap<String, TextPosition>;

/// The origin of a text of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextOrigin {
    /// A file that a person wrote.
    File,
    /// Generated from another text, so that nobody knows its lines.
    Generated,
}

/// The state of parsing a text.
pub struct ParseState<'a> {
    source: TextOrigin,
    text: &'a str,
    lines: LineIndex<'a>,
    positions: KeyPositions,
    mistakes: Vec<RuleMistake>,
    /// The number of patterns so far.
    pub(super) patterns: usize,
}

impl<'a> ParseState<'a> {
    pub(super) fn new(source: TextOrigin, text: &'a str, lines: LineIndex<'a>) -> Self {
        Self {
            source,
            text,
            lines,
            positions: KeyPositions::new(),
            mistakes: Vec::new(),
            patterns: 0,
        }
    }

    /// The positions of everything, or all mistakes.
    pub(super) fn finish(mut self) -> Result<KeyPositions, Vec<RuleMistake>> {
        if self.mistakes.is_empty() {
            return Ok(self.positions);
        }
        self.mistakes
            .sort_indirect_by_key(|mistake| mistake.position);
        Err(self.mistakes)
    }
}

/// One value with its position.
pub struct ValueReader<'a, 'f> {
    pub(super) value: &'a Spanned<DeValue<'a>>,
    /// The path of the value: `user_policies.alice.memory_limit_gb`.
    pub(super) path: String,
    /// The offset of its key, or of the value if it has no key.
    offset: usize,
    state: &'f mut ParseState<'a>,
}

impl<'a, 'f> ValueReader<'a, 'f> {
    /// The value of a key of the file.
    pub(super) fn new(
        key: &Spanned<DeString<'a>>,
        value: &'a Spanned<DeValue<'a>>,
        state: &'f mut ParseState<'a>,
    ) -> Self {
        let path = field::quote_key(key.get_ref());
        Self::with_recorded_position(path, key.span().start, value, state)
    }

    fn with_recorded_position(
        path: String,
        begin: usize,
        value: &'a Spanned<DeValue<'a>>,
        state: &'f mut ParseState<'a>,
    ) -> Self {
        let mut at = Self {
            value,
            path,
            offset: begin,
            state,
        };
        at.record_position();
        at
    }

    /// Records the position for later use.
    pub(super) fn record_position(&mut self) {
        let position = self.position();
        self.state.positions.insert(self.path.clone(), position);
    }

    /// The value of a key of this table.
    pub(super) fn child(
        &mut self,
        key: &Spanned<DeString<'a>>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> ValueReader<'a, '_> {
        let path = format!("{}.{}", self.path, field::quote_key(key.get_ref()));
        ValueReader::with_recorded_position(path, key.span().start, value, self.state)
    }

    /// An item of this list, by its name.
    pub(super) fn named_item(
        &mut self,
        name: &str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> ValueReader<'a, '_> {
        let path = format!("{}.{name}", self.path);
        ValueReader::with_recorded_position(path, value.span().start, value, self.state)
    }

    /// An item of this list, by its index.
    pub(super) fn indexed_item(
        &mut self,
        position: usize,
        value: &'a Spanned<DeValue<'a>>,
    ) -> ValueReader<'a, '_> {
        ValueReader {
            value,
            path: format!("{}[{position}]", self.path),
            offset: value.span().start,
            state: self.state,
        }
    }

    /// The position of its key, or of the value if it has no key.
    pub(super) fn position(&self) -> TextPosition {
        self.state.lines.position(self.offset)
    }

    /// The value as it was written, cut to [`MAX_SHOWN_BYTES`].
    pub(super) fn source_text(&self) -> String {
        let written = self.state.text.get(self.value.span()).unwrap_or_default();
        sanitize(written.as_bytes(), MAX_SHOWN_BYTES)
    }

    pub(super) fn report(&mut self, what: impl Into<String>) {
        self.report_with_suggestion(what, None);
    }

    pub(super) fn report_with_suggestion(
        &mut self,
        what: impl Into<String>,
        suggestion: Option<String>,
    ) {
        let is_table = matches!(self.value.get_ref(), DeValue::Table(_));
        let begin = if is_table {
            self.offset
        } else {
            self.value.span().start
        };
        self.push_mistake(begin, what.into(), suggestion);
    }

    /// Reports that another item has the same name.
    pub(super) fn report_duplicate_name(&mut self, other: TextPosition) {
        self.report(match self.state.source {
            TextOrigin::File => {
                let line = other.line;
                format!("is a duplicate name: the other one is on line {line}")
            }
            TextOrigin::Generated => "is a duplicate name".to_owned(),
        });
    }

    pub(super) fn report_unknown_key<'n>(
        &mut self,
        known: impl IntoIterator<Item = &'n str> + Clone,
    ) {
        if self.state.mistakes.len() >= MAX_MISTAKES {
            return;
        }
        let name = self.path.rsplit('.').next().unwrap_or_default();
        let suggestion = match FOREIGN_KEYS.contains(&name) {
            true => Some("it has no meaning in these rules; import removes it".to_owned()),
            false => {
                let near = closest_name(name, known.clone()).or_else(|| find_by_words(name, known));
                key_suggestion(name, near)
            }
        };
        self.push_mistake(self.offset, "unknown key".to_owned(), suggestion);
    }

    fn push_mistake(&mut self, begin: usize, what: String, suggestion: Option<String>) {
        if self.state.mistakes.len() < MAX_MISTAKES {
            self.state.mistakes.push(RuleMistake {
                position: Some(self.state.lines.position(begin)),
                path: sanitize(self.path.as_bytes(), 2 * MAX_SHOWN_BYTES),
                what,
                suggestion,
            });
        }
    }

    /// Counts one more pattern. Returns whether it is allowed.
    pub(super) fn count_pattern(&mut self) -> bool {
        self.state.patterns += 1;
        let may_be = self.state.patterns <= super::bounds::MAX_PATTERNS;
        if !may_be {
            let max = super::bounds::MAX_PATTERNS;
            self.report(format!("exceeds the limit of {max} patterns"));
        }
        may_be
    }

    /// The value as a table. Anything else is reported.
    pub(super) fn as_table(&mut self) -> Option<&'a DeTable<'a>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            let shown = self.source_text();
            self.report(format!("{shown} is not a table"));
            return None;
        };
        Some(table)
    }

    /// Whether this table has the key.
    pub(super) fn has_key(&self, key: &str) -> bool {
        let DeValue::Table(table) = self.value.get_ref() else {
            return false;
        };
        table.contains_key(key)
    }

    /// Reads all keys of this table.
    pub(super) fn read_table<T>(&mut self, keys: TableKeys<T>, target: &mut T) {
        let Some(table) = self.as_table() else {
            return;
        };
        for (key, value) in table {
            let mut at = self.child(key, value);
            let is_known = keys
                .iter()
                .any(|part| part.set(target, key.get_ref(), &mut at));
            if !is_known {
                at.report_unknown_key(field::names(keys).iter().map(String::as_str));
            }
        }
    }
}

/// The probable intention behind an unknown key: the key of its table that is `near`, and the
/// other tables that have the key or a similar one.
fn key_suggestion(name: &str, near: Option<&str>) -> Option<String> {
    let tables = super::key_tables();
    let with_key = |key: &str| {
        let tables = tables.iter();
        let tables = tables.filter(|(_, keys)| keys.iter().any(|it| it == key));
        let headings: Vec<&str> = tables.map(|(heading, _)| *heading).collect();
        (!headings.is_empty()).then(|| headings.join(" or "))
    };
    match (near, with_key(name)) {
        (Some(near), None) => Some(format!("did you mean {near}?")),
        (Some(near), Some(headings)) => {
            Some(format!("did you mean {near}? {name} belongs in {headings}"))
        }
        (None, Some(headings)) => Some(format!("{name} belongs in {headings}")),
        (None, None) => {
            let keys = tables.iter().flat_map(|(_, keys)| keys);
            let near = closest_name(name, keys.map(String::as_str))?;
            let headings = with_key(near)?;
            Some(format!("did you mean {near}? It belongs in {headings}"))
        }
    }
}

/// The shortest name that contains all words of the typed one: `memory_limit_gb` for
/// `memory_gb`.
fn find_by_words<'n>(typed: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let has_all = |name: &&str| {
        typed
            .split('_')
            .all(|word| name.split('_').any(|it| it == word))
    };
    known
        .into_iter()
        .filter(has_all)
        .min_by_key(|name| name.len())
}

/// Keys of gpu-kill's files that have no meaning here.
const FOREIGN_KEYS: [&str; 6] = [
    "check_interval_seconds",
    "notifications",
    "metadata",
    "memory_multiplier",
    "utilization_multiplier",
    "duration_multiplier",
];
