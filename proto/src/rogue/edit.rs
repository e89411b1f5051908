//! Changes of `rogue.toml`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One change of `rogue.toml`. Keys and values are texts, as typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RogueEdit {
    /// Sets one key.
    SetKey {
        /// The key: `detection.max_memory_usage_gb`.
        path: String,
        /// The value; an empty value removes the key.
        value: String,
    },
    /// Adds an entry to an allow list.
    Allow(AllowKind, String),
    /// Removes an entry from an allow list.
    Disallow(AllowKind, String),
    /// Replaces the whole text.
    Replace(String),
}

impl fmt::Display for RogueEdit {
    /// Formats the change for the record: `allow process hashcat@bob`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetKey { path, value } => write!(f, "{path} = {value}"),
            Self::Allow(by, what) => write!(f, "allow {} {what}", by.name()),
            Self::Disallow(by, what) => write!(f, "disallow {} {what}", by.name()),
            Self::Replace(text) => write!(f, "replace all with {} bytes", text.len()),
        }
    }
}

/// The user in the entry of an allow list that an edit changed, from its text in the record;
/// `None` if it changed another part of the rules, or an entry for everyone.
#[must_use]
pub fn edited_user(recorded: &str) -> Option<&str> {
    let entry = recorded.strip_prefix("allow ");
    let entry = entry.or_else(|| recorded.strip_prefix("disallow "))?;
    let (by, what) = entry.split_once(' ')?;
    if by == AllowKind::User.name() {
        return Some(what);
    }
    // The text after the `@` of an image digest has a colon.
    let (_, user) = what.rsplit_once('@')?;
    (!user.is_empty() && !user.contains([':', '/', ' '])).then_some(user)
}

/// The property that an allow-list entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AllowKind {
    /// The kernel's name of the process, or `name@user`.
    Process,
    /// The user.
    User,
    /// The path of its executable, or `path@user`.
    Executable,
    /// The image of its container, or `image@user`.
    Image,
}

impl AllowKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Process, Self::User, Self::Executable, Self::Image];

    /// The name in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::User => "user",
            Self::Executable => "executable",
            Self::Image => "image",
        }
    }

    /// The key of the list in the file.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Process => "process_whitelist",
            Self::User => "user_whitelist",
            Self::Executable => "executable_whitelist",
            Self::Image => "image_whitelist",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_edit_names_its_user() {
        let allow = |by, what: &str| RogueEdit::Allow(by, what.into()).to_string();
        let cases = [
            (allow(AllowKind::User, "bob"), Some("bob")),
            (allow(AllowKind::Process, "hashcat@bob"), Some("bob")),
            (allow(AllowKind::Process, "hashcat"), None),
            (allow(AllowKind::Image, "miner@sha256:0123"), None),
            (
                RogueEdit::Disallow(AllowKind::Executable, "/opt/x@bob".into()).to_string(),
                Some("bob"),
            ),
            (RogueEdit::Replace("x".into()).to_string(), None),
        ];
        for (recorded, user) in cases {
            assert_eq!(edited_user(&recorded), user, "{recorded}");
        }
    }
}
