//! Patterns with `*` and `?` for whole names.

use super::PATTERN_SIZE;
use regex_lite::{Regex, RegexBuilder};
use serde::Serialize;

/// A pattern with `*` and `?` for a whole text, and what was typed.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Glob {
    /// As it was typed.
    pub typed: String,
    /// What that means.
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
    /// This pattern; `None` where it is too large.
    #[must_use]
    pub fn parse(typed: &str) -> Option<Self> {
        let regex = glob(typed)?;
        Some(Self {
            typed: typed.to_owned(),
            regex,
        })
    }

    /// Whether it names this unit of the system's systemd. A pattern with a wildcard
    /// names no login session and no systemd of a person: `*.scope` and `*.service`
    /// would protect all that anybody starts.
    pub(crate) fn names_unit(&self, unit: &str) -> bool {
        let is_exact = !self.typed.contains(['*', '?']);
        self.regex.is_match(unit) && (is_exact || !is_of_a_login(unit))
    }
}

/// Whether this unit of the system's systemd holds what a person starts: a login
/// session, or a systemd of that person's own.
pub(crate) fn is_of_a_login(unit: &str) -> bool {
    unit.starts_with("session-") || is_user_manager(unit)
}

/// `user@1000.service`: a systemd of a person's own, below which all that they start
/// lies.
pub(crate) fn is_user_manager(unit: &str) -> bool {
    unit.starts_with("user@")
}

/// `*` is any text, `?` any character, all else itself, in any case. `None` for
/// one that is too large.
pub(crate) fn glob(pattern: &str) -> Option<Regex> {
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
        .size_limit(PATTERN_SIZE)
        .build()
        .ok()
}
