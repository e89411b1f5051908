//! Why a plan never ends a process, and whether root may override that.

use serde::{Deserialize, Serialize};

/// Why no caller may end a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionReason {
    /// The reason in words.
    pub why: String,
    /// Whether root may end it with [`super::KillRequest::override_protected`].
    pub root_may_override: bool,
}

impl ProtectionReason {
    /// Protection that root cannot override.
    #[must_use]
    pub fn always(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            root_may_override: false,
        }
    }

    /// Protection that root can override in the request.
    #[must_use]
    pub fn unless_overridden(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            root_may_override: true,
        }
    }

    /// How to end the process all the same, in words; `None` if that is impossible.
    #[must_use]
    pub const fn override_hint(&self) -> Option<&'static str> {
        match self.root_may_override {
            true => Some("root may end it with --override-protected"),
            false => None,
        }
    }
}
