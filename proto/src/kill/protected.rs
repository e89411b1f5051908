//! What a plan spares, and who may override that.

use serde::{Deserialize, Serialize};

/// Why a process is not ended, whoever asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The reason, in words.
    pub why: String,
    /// Whether root may end it with [`super::KillRequest::override_protected`].
    pub root_may_override: bool,
}

impl Protected {
    /// Nobody ends it, root included.
    #[must_use]
    pub fn always(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            root_may_override: false,
        }
    }

    /// Root may end it, where the request says so.
    #[must_use]
    pub fn unless_overridden(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            root_may_override: true,
        }
    }

    /// How it can be ended all the same, in words; `None` where it cannot.
    #[must_use]
    pub const fn way(&self) -> Option<&'static str> {
        match self.root_may_override {
            true => Some("root may end it with --override-protected"),
            false => None,
        }
    }
}
