//! Changes of the guard's rules, and what is wrong with rules.

use super::GuardMode;
use crate::settings::place::Place;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One change of the rules. Keys and values are texts, as they are typed: `8`,
/// `90m`, `alice,bob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardEdit {
    /// Sets these keys of a policy, which it makes where there is none.
    SetPolicy {
        /// Of which kind.
        kind: PolicyKind,
        /// Which.
        name: String,
        /// Keys of the policy, and their values; an empty value removes the key.
        fields: Vec<(String, String)>,
    },
    /// Removes a policy.
    RemovePolicy {
        /// Of which kind.
        kind: PolicyKind,
        /// Which.
        name: String,
    },
    /// Sets one key of a table there is one of.
    SetKey {
        /// `enforcement.max_warnings`
        path: String,
        /// Its value; an empty one removes the key.
        value: String,
    },
    /// How far the guard goes.
    SetMode(GuardMode),
    /// From dry run to what it rehearses, or back.
    ToggleDryRun,
    /// The whole text, for another.
    Replace(String),
}

impl fmt::Display for GuardEdit {
    /// As it is recorded: `user policy alice: memory_limit_gb = 8`
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
            Self::Replace(text) => write!(f, "replace all, by {} bytes", text.len()),
        }
    }
}

/// Of what a policy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PolicyKind {
    /// A person.
    User,
    /// A group.
    Group,
    /// A device.
    Gpu,
    /// Hours of the week.
    Time,
    /// What processes do.
    Rule,
}

impl PolicyKind {
    /// In the order in which files have them.
    pub const ALL: [Self; 5] = [Self::User, Self::Group, Self::Gpu, Self::Time, Self::Rule];

    /// The table of the file where these stand.
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

    /// As people call it.
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

/// Something wrong in a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// Where; `None` where the text was made of another, whose lines are not known:
    /// then [`Mistake::path`] says where.
    pub place: Option<Place>,
    /// What it is about: `user_policies.alice.memory_limit_gb`. Empty where the
    /// text is no TOML.
    pub path: String,
    /// What is wrong, with what was written in it.
    pub what: String,
    /// What was probably meant, or what would be right.
    pub suggestion: Option<String>,
}

impl fmt::Display for Mistake {
    /// `line 3, column 1: global.enabeld: unknown key; did you mean enabled?`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
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

/// Rules that are right, and yet hardly meant so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Warning {
    /// Where, if it is said at one place.
    pub place: Option<Place>,
    /// What it is about.
    pub path: String,
    /// What is odd about it.
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "line {}: ", place.line)?;
        }
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// Why rules were not changed, whose mistakes are told so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EditError<M = Mistake> {
    /// They have mistakes as they are: what is not understood is not changed.
    Broken(Vec<M>),
    /// They would have these mistakes.
    Refused(Vec<M>),
    /// What is to be changed or removed is not there.
    NoSuch {
        /// What there is none of: `user policy "alcie"`.
        what: String,
        /// What is there and was probably meant.
        near: Option<String>,
    },
    /// They say so already: `process "hashcat" is allowed`.
    Already(String),
}

impl<M: fmt::Display> fmt::Display for EditError<M> {
    /// Mistakes have a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, mistakes) = match self {
            Self::Broken(mistakes) => ("the rules have mistakes as they are", mistakes),
            Self::Refused(mistakes) => ("the rules would have mistakes", mistakes),
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
