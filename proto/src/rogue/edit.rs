//! Changes of `rogue.toml`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One change of `rogue.toml`. Keys and values are texts, as they are typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RogueEdit {
    /// Sets one key.
    SetKey {
        /// `detection.max_memory_usage_gb`
        path: String,
        /// Its value; an empty one removes the key.
        value: String,
    },
    /// Has nobody look for these any more.
    Allow(AllowBy, String),
    /// Has them looked for again.
    Disallow(AllowBy, String),
    /// The whole text, for another.
    Replace(String),
}

impl fmt::Display for RogueEdit {
    /// As it is recorded: `allow process hashcat@bob`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetKey { path, value } => write!(f, "{path} = {value}"),
            Self::Allow(by, what) => write!(f, "allow {} {what}", by.name()),
            Self::Disallow(by, what) => write!(f, "disallow {} {what}", by.name()),
            Self::Replace(text) => write!(f, "replace all, by {} bytes", text.len()),
        }
    }
}

/// By what somebody is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AllowBy {
    /// The kernel's name for it, or `name@user`.
    Process,
    /// The user.
    User,
    /// The path of its executable, or `path@user`.
    Executable,
    /// The image of its container, or `image@user`.
    Image,
}

impl AllowBy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Process, Self::User, Self::Executable, Self::Image];

    /// As people call it.
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
