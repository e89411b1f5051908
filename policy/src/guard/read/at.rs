//! One value where it stands, and what was found wrong so far.

use super::field::{self, Keys};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::Mistake;
use gpukill_proto::settings::nearest;
use gpukill_proto::settings::place::{Lines, Place};
use gpukill_proto::text::visible;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// So many mistakes of a file are told.
pub const MOST_MISTAKES: usize = 1_000;

/// So much of a wrong value is told, in bytes.
const TOLD: usize = 80;

/// Where each table and key of a file stands, by its path.
pub type Places = BTreeMap<String, Place>;

/// Where a text of rules is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A file, as somebody wrote it.
    File,
    /// It was made of another text, and nobody knows its lines.
    Made,
}

/// What was found so far.
pub struct Found<'a> {
    source: Source,
    text: &'a str,
    lines: Lines<'a>,
    places: Places,
    mistakes: Vec<Mistake>,
    /// How many patterns there are.
    pub(super) patterns: usize,
}

impl<'a> Found<'a> {
    pub(super) fn new(source: Source, text: &'a str, lines: Lines<'a>) -> Self {
        Self {
            source,
            text,
            lines,
            places: Places::new(),
            mistakes: Vec::new(),
            patterns: 0,
        }
    }

    /// Where everything stands.
    pub(super) fn finish(mut self) -> Result<Places, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            return Ok(self.places);
        }
        self.mistakes.sort_indirect_by_key(|mistake| mistake.place);
        Err(self.mistakes)
    }
}

/// One value where it stands.
pub struct At<'a, 'f> {
    /// The value.
    pub(super) value: &'a Spanned<DeValue<'a>>,
    /// What it is called: `user_policies.alice.memory_limit_gb`.
    pub(super) path: String,
    /// Where its key is, or itself if it has none.
    begin: usize,
    found: &'f mut Found<'a>,
}

impl<'a, 'f> At<'a, 'f> {
    /// The value of a key of the file.
    pub(super) fn new(
        key: &Spanned<DeString<'a>>,
        value: &'a Spanned<DeValue<'a>>,
        found: &'f mut Found<'a>,
    ) -> Self {
        let path = field::key(key.get_ref());
        Self::noted(path, key.span().start, value, found)
    }

    fn noted(
        path: String,
        begin: usize,
        value: &'a Spanned<DeValue<'a>>,
        found: &'f mut Found<'a>,
    ) -> Self {
        let mut at = Self {
            value,
            path,
            begin,
            found,
        };
        at.note();
        at
    }

    /// Where it stands is asked for later.
    pub(super) fn note(&mut self) {
        let place = self.place();
        self.found.places.insert(self.path.clone(), place);
    }

    /// The value of a key of this table.
    pub(super) fn key(
        &mut self,
        key: &Spanned<DeString<'a>>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> At<'a, '_> {
        let path = format!("{}.{}", self.path, field::key(key.get_ref()));
        At::noted(path, key.span().start, value, self.found)
    }

    /// One of this list, by its name.
    pub(super) fn item(&mut self, name: &str, value: &'a Spanned<DeValue<'a>>) -> At<'a, '_> {
        let path = format!("{}.{name}", self.path);
        At::noted(path, value.span().start, value, self.found)
    }

    /// One of this list, by its position from 0.
    pub(super) fn numbered(
        &mut self,
        position: usize,
        value: &'a Spanned<DeValue<'a>>,
    ) -> At<'a, '_> {
        At {
            value,
            path: format!("{}[{position}]", self.path),
            begin: value.span().start,
            found: self.found,
        }
    }

    /// Where its key is, or itself if it has none.
    pub(super) fn place(&self) -> Place {
        self.found.lines.place(self.begin)
    }

    /// As it was written, as much as can be told.
    pub(super) fn shown(&self) -> String {
        let written = self.found.text.get(self.value.span()).unwrap_or_default();
        visible(written.as_bytes(), TOLD)
    }

    /// Something is wrong with it.
    pub(super) fn wrong(&mut self, what: impl Into<String>) {
        self.wrong_with(what, None);
    }

    /// Something is wrong with it, and this would be right.
    pub(super) fn wrong_with(&mut self, what: impl Into<String>, suggestion: Option<String>) {
        let is_table = matches!(self.value.get_ref(), DeValue::Table(_));
        let begin = if is_table {
            self.begin
        } else {
            self.value.span().start
        };
        self.tell(begin, what.into(), suggestion);
    }

    /// Another there is called the same.
    pub(super) fn is_of_two(&mut self, other: Place) {
        self.wrong(match self.found.source {
            Source::File => {
                let line = other.line;
                format!("is the name of two: the other is on line {line}")
            }
            Source::Made => "is the name of two".to_owned(),
        });
    }

    /// Nothing is called so here.
    pub(super) fn unknown<'n>(&mut self, known: impl IntoIterator<Item = &'n str> + Clone) {
        if self.found.mistakes.len() >= MOST_MISTAKES {
            return;
        }
        let name = self.path.rsplit('.').next().unwrap_or_default();
        let suggestion = match FOREIGN.contains(&name) {
            true => Some("it means nothing here, and import leaves it out".to_owned()),
            false => nearest(name, known.clone())
                .or_else(|| with_words_of(name, known))
                .map(|near| format!("did you mean {near}?")),
        };
        self.tell(self.begin, "unknown key".to_owned(), suggestion);
    }

    fn tell(&mut self, begin: usize, what: String, suggestion: Option<String>) {
        if self.found.mistakes.len() < MOST_MISTAKES {
            self.found.mistakes.push(Mistake {
                place: Some(self.found.lines.place(begin)),
                path: visible(self.path.as_bytes(), 2 * TOLD),
                what,
                suggestion,
            });
        }
    }

    /// One more pattern is read: whether there may be.
    pub(super) fn count_pattern(&mut self) -> bool {
        self.found.patterns += 1;
        let may_be = self.found.patterns <= super::bounds::PATTERNS;
        if !may_be {
            let most = super::bounds::PATTERNS;
            self.wrong(format!("is one pattern too many: at most {most} are read"));
        }
        may_be
    }

    /// The table that it is.
    pub(super) fn as_table(&mut self) -> Option<&'a DeTable<'a>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            let shown = self.shown();
            self.wrong(format!("{shown} is no table"));
            return None;
        };
        Some(table)
    }

    /// Whether this table says something of this key.
    pub(super) fn has(&self, key: &str) -> bool {
        let DeValue::Table(table) = self.value.get_ref() else {
            return false;
        };
        table.contains_key(key)
    }

    /// Reads all keys of this table.
    pub(super) fn table<T>(&mut self, keys: Keys<T>, target: &mut T) {
        let Some(table) = self.as_table() else {
            return;
        };
        for (key, value) in table {
            let mut at = self.key(key, value);
            let is_known = keys
                .iter()
                .any(|part| part.set(target, key.get_ref(), &mut at));
            if !is_known {
                at.unknown(field::names(keys).iter().map(String::as_str));
            }
        }
    }
}

/// The shortest name that has all words of what was typed, and more: for `memory_gb`
/// `memory_limit_gb`.
fn with_words_of<'n>(typed: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
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

/// Keys of gpu-kill's own files that mean nothing here.
const FOREIGN: [&str; 6] = [
    "check_interval_seconds",
    "notifications",
    "metadata",
    "memory_multiplier",
    "utilization_multiplier",
    "duration_multiplier",
];
