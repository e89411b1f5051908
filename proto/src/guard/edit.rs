//! Edits of the guard's rules, and mistakes and lints of rules.

use super::GuardMode;
use crate::settings::position::TextPosition;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One change of the rules. Keys and values are texts, as typed: `8`, `90m`, `alice,bob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardEdit {
    /// Sets keys of a policy, which is created if missing.
    SetPolicy {
        /// The kind of the policy.
        kind: PolicyKind,
        /// The name of the policy.
        name: String,
        /// The keys and their values; an empty value removes the key.
        fields: Vec<(String, String)>,
    },
    /// Removes a policy.
    RemovePolicy {
        /// The kind of the policy.
        kind: PolicyKind,
        /// The name of the policy.
        name: String,
    },
    /// Sets one key of a table that exists once.
    SetKey {
        /// The key: `enforcement.max_warnings`.
        path: String,
        /// The value; an empty value removes the key.
        value: String,
    },
    /// Sets the mode.
    SetMode(GuardMode),
    /// Switches from dry run to the simulated mode, or back.
    ToggleDryRun,
    /// Replaces the whole text.
    Replace(String),
}

impl fmt::Display for GuardEdit {
    /// Formats the change for the record: `user policy alice: memory_limit_gb = 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetPolicy { kind, name, fields } => {
                write!(f, "{} {name}:", kind.name())?;
                for (position, (key, value)) in fields.iter().enumerate() {
                    let comma = if position > 0 { "," } else { "" };
                    write!(f, "{comma} {key} = {value}")?;
                }
                Ok(())
            }
            Self::RemovePolicy { kind, name } => write!(f, "remove {} {name}", kind.name()),
            Self::SetKey { path, value } => write!(f, "{path} = {value}"),
            Self::SetMode(mode) => write!(f, "mode {}", mode.name()),
            Self::ToggleDryRun => f.write_str("toggle dry run"),
            Self::Replace(text) => write!(f, "replace all with {} bytes", text.len()),
        }
    }
}

/// The kind of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PolicyKind {
    /// A policy for a person.
    User,
    /// A policy for a group.
    Group,
    /// A policy for a device.
    Gpu,
    /// A policy for hours of the week.
    Time,
    /// A behaviour rule.
    Rule,
}

impl PolicyKind {
    /// All kinds, in the order of the file.
    pub const ALL: [Self; 5] = [Self::User, Self::Group, Self::Gpu, Self::Time, Self::Rule];

    /// The table of the file.
    #[must_use]
    pub const fn table(self) -> &'static str {
        match self {
            Self::User => "user_policies",
            Self::Group => "group_policies",
            Self::Gpu => "gpu_policies",
            Self::Time => "time_policies",
            Self::Rule => "rules",
        }
    }

    /// The name in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user policy",
            Self::Group => "group policy",
            Self::Gpu => "GPU policy",
            Self::Time => "time policy",
            Self::Rule => "rule",
        }
    }
}

/// The kind and the name of the policy that an edit changed, from its text in the record; `None` if
/// it changed another part of the rules.
#[must_use]
pub fn edited_policy(recorded: &str) -> Option<(PolicyKind, &str)> {
    let policy = |kind: PolicyKind| {
        let named = |text| str::strip_prefix(text, kind.name())?.strip_prefix(' ');
        if let Some(name) = recorded.strip_prefix("remove ").and_then(named) {
            return Some(name);
        }
        if let Some(rest) = named(recorded) {
            // A name may be a PCI address, which has colons too.
            let set = rest.split_once(": ").map(|(name, _)| name);
            return set.or_else(|| rest.strip_suffix(':'));
        }
        let (path, _) = recorded.split_once(" = ")?;
        let path = path.strip_prefix(kind.table())?.strip_prefix('.')?;
        let (name, _) = path.rsplit_once('.')?;
        Some(name.trim_matches(['"', '\'']))
    };
    let mut kinds = PolicyKind::ALL.into_iter();
    kinds.find_map(|kind| Some((kind, policy(kind)?)))
}

/// A mistake in a rules file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleMistake {
    /// The position; `None` for a text that was derived from another one with unknown lines:
    /// [`RuleMistake::path`] then locates the mistake.
    pub position: Option<TextPosition>,
    /// The key: `user_policies.alice.memory_limit_gb`. Empty if the text is not TOML.
    pub path: String,
    /// The mistake, with the value itself.
    pub what: String,
    /// The probable intention, or a valid form.
    pub suggestion: Option<String>,
}

impl fmt::Display for RuleMistake {
    /// `line 3, column 1: global.enabeld: unknown key; did you mean enabled?`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(TextPosition { line, column }) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

/// A lint: rules that are valid but probably unintended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lint {
    /// The position, if the lint is about one position.
    pub position: Option<TextPosition>,
    /// The key.
    pub path: String,
    /// The hint.
    pub what: String,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "line {}: ", position.line)?;
        }
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// Why rules were not changed. `M` is the type of the mistakes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EditError<M = RuleMistake> {
    /// The current rules have mistakes: rules that cannot be parsed are not changed.
    AlreadyInvalid(Vec<M>),
    /// The new rules would have mistakes.
    Refused(Vec<M>),
    /// The item to change or remove does not exist.
    NoSuch {
        /// The missing item: `user policy "alcie"`.
        what: String,
        /// A similar item that exists.
        near: Option<String>,
    },
    /// The rules already say so: `process "hashcat" is allowed`.
    Already(String),
}

impl<M: fmt::Display> fmt::Display for EditError<M> {
    /// Prints each mistake on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, mistakes) = match self {
            Self::AlreadyInvalid(mistakes) => ("the current rules have mistakes", mistakes),
            Self::Refused(mistakes) => ("the new rules would have mistakes", mistakes),
            Self::NoSuch { what, near } => {
                write!(f, "there is no {what}")?;
                return match near {
                    Some(near) => write!(f, "; did you mean {near}?"),
                    None => Ok(()),
                };
            }
            Self::Already(what) => return write!(f, "{what} already"),
        };
        f.write_str(what)?;
        for mistake in mistakes {
            write!(f, "\n{mistake}")?;
        }
        Ok(())
    }
}

impl<M: fmt::Debug + fmt::Display> std::error::Error for EditError<M> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_edit_names_its_policy() {
        let name = "0000:1b:00.0";
        for kind in PolicyKind::ALL {
            let set = |fields: &[(&str, &str)]| GuardEdit::SetPolicy {
                kind,
                name: name.into(),
                fields: fields
                    .iter()
                    .map(|(key, value)| ((*key).into(), (*value).into()))
                    .collect(),
            };
            let edits = [
                set(&[]),
                set(&[("enabled", "true")]),
                set(&[("enabled", "true"), ("allowed_users", "bob")]),
                GuardEdit::RemovePolicy {
                    kind,
                    name: name.into(),
                },
                GuardEdit::SetKey {
                    path: format!("{}.\"{name}\".enabled", kind.table()),
                    value: "true".into(),
                },
            ];
            for edit in edits {
                let recorded = edit.to_string();
                assert_eq!(edited_policy(&recorded), Some((kind, name)), "{recorded}");
            }
        }
        let others = [
            GuardEdit::SetKey {
                path: "enforcement.max_warnings".into(),
                value: "3".into(),
            },
            GuardEdit::SetMode(GuardMode::Soft),
            GuardEdit::ToggleDryRun,
            GuardEdit::Replace("x".into()),
        ];
        for edit in others {
            let recorded = edit.to_string();
            assert_eq!(edited_policy(&recorded), None, "{recorded}");
        }
    }
}
