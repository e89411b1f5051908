//! The interface of one kind of rules, and the rules in force.

use crate::store::RuleSetKind;
use gpukill_proto::guard::RulesRevision;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

pub(crate) trait RulesKind: 'static {
    /// Parsed rules. Clones are cheap.
    type Rules: Clone + Send + Sync;
    /// One edit, displayed as the violation is recorded.
    type Edit: fmt::Display + Send + Sync;

    /// The kind under which they are recorded.
    const KIND: RuleSetKind;
    /// The command that checks a file of them.
    const CHECK_COMMAND: &str;

    /// The rules without a file.
    fn built_in() -> Self::Rules;

    /// Parses a text.
    ///
    /// # Errors
    /// All mistakes in it.
    fn parse(text: &str) -> Result<Self::Rules, Vec<RulesMistake>>;

    /// Applies an edit to a text, while the rules `held` are in force.
    fn apply_edit(text: &str, asked: &Self::Edit, held: &Self::Rules) -> Result<String, String>;

    /// The edit that replaces everything with this text.
    fn replacement(text: String) -> Self::Edit;

    /// The text with which an edit replaces everything; `None` for other edits.
    fn replacement_text(asked: &Self::Edit) -> Option<&str>;

    fn log_in_force(rules: &Self::Rules, revision: Option<&str>);
}

/// Rules in force, and where they come from.
#[derive(Debug, Clone)]
pub(crate) struct RulesInForce<R> {
    pub(crate) rules: R,
    /// The text; empty if there is no file.
    pub(crate) text: Arc<str>,
    /// `None` if there is no file, and the built-in rules apply.
    pub(crate) revision: Option<RulesRevision>,
    /// Why the file, as last read, is not in force.
    pub(crate) mistakes: Vec<RulesMistake>,
    /// The revision of the text with these mistakes.
    pub(super) mistaken_revision: Option<RulesRevision>,
}

impl<R> RulesInForce<R> {
    pub(super) fn new(rules: R, text: &str, revision: Option<RulesRevision>) -> Self {
        Self {
            rules,
            text: text.into(),
            revision,
            mistakes: Vec::new(),
            mistaken_revision: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RulesMistake {
    /// The position, without any text from the file.
    position: String,
    message: String,
}

impl RulesMistake {
    /// A mistake at this position, such as `line 3`.
    pub(crate) fn at_position(position: Option<String>, what: String) -> Self {
        let position = match position {
            Some(position) => format!("a mistake in {position}"),
            None => "a mistake".to_owned(),
        };
        Self {
            position,
            message: what,
        }
    }

    /// The first mistakes only: a file can have one on each line.
    pub(crate) fn truncate(mut all: Vec<Self>) -> Vec<Self> {
        const MAX_MISTAKES: usize = 100;
        let more = all.len().saturating_sub(MAX_MISTAKES);
        all.truncate(MAX_MISTAKES);
        if more > 0 {
            all.push(Self::at_position(None, format!("{more} more mistakes")));
        }
        all
    }

    /// The file cannot be read.
    pub(super) fn unreadable(why: &std::io::Error) -> Self {
        Self {
            position: why.to_string(),
            message: why.to_string(),
        }
    }

    /// The position, without any text from the file.
    pub(crate) fn position(&self) -> String {
        self.position.clone()
    }
}

impl fmt::Display for RulesMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
