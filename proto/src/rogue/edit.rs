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
