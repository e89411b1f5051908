//! Patterns with `*` and `?` for whole names.

use super::MAX_COMPILED_PATTERN_BYTES;
use regex_lite::{Regex, RegexBuilder};
use serde::Serialize;

/// A pattern with `*` and `?` for a whole text, with its source text.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Glob {
    /// The pattern as typed.
    pub typed: String,
    /// The compiled pattern.
    #[serde(skip)]
    pub regex: Regex,
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.typed == other.typed
    }
}

impl Eq for Glob {}

impl Glob {
    /// Parses a pattern; `None` where it is too large.
    #[must_use]
    pub fn parse(typed: &str) -> Option<Self> {
        let regex = compile_glob(typed)?;
        Some(Self {
            typed: typed.to_owned(),
            regex,
        })
    }

    /// Whether the pattern names this unit of the system's systemd. A pattern with a
    /// wildcard never names a login session or a user's systemd: `*.scope` and
    /// `*.service` would protect every process that a person starts.
    pub(crate) fn names_unit(&self, unit: &str) -> bool {
        let is_exact = !self.typed.contains(['*', '?']);
        let holds_user_processes = unit.starts_with("session-") || is_user_manager(unit);
        self.regex.is_match(unit) && (is_exact || !holds_user_processes)
    }
}

/// Whether this is the systemd of a user, such as `user@1000.service`, below which all
/// processes of that user run.
pub(crate) fn is_user_manager(unit: &str) -> bool {
    unit.starts_with("user@")
}

/// Compiles a pattern: `*` is any text, `?` any character, everything else is literal;
/// case is ignored. `None` where the pattern is too large.
pub(crate) fn compile_glob(pattern: &str) -> Option<Regex> {
    let mut expression = String::from("^");
    for c in pattern.chars() {
        match c {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            other => expression.push_str(&regex_lite::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    RegexBuilder::new(&expression)
        .case_insensitive(true)
        .size_limit(MAX_COMPILED_PATTERN_BYTES)
        .build()
        .ok()
}
