//! Why the daemon did not do what was asked, in words for the person who asked.

use serde::{Deserialize, Serialize};

/// A refusal or a failure. Every answer of the service carries its own, since
/// errors of the transport lose their kind on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller lacks a right.
    Denied {
        /// What was asked, as in "cannot …".
        asked: String,
        /// Who could, as in "ask …".
        ask: String,
    },
    /// The request makes no sense; says where.
    Invalid(String),
    /// Nothing is named by what was asked for.
    NoMatch(String),
    /// Too many requests now: try again.
    Busy,
    /// A part of the daemon that is needed does not work now; says which.
    Unavailable(String),
    /// The question took longer than the daemon allows; narrow it.
    TooSlow(String),
    /// The rest of an answer was asked for after the daemon had let it go.
    Expired,
    /// The daemon made a mistake; its log has more.
    Internal,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Denied { asked, .. } => write!(f, "cannot {asked}"),
            Self::Invalid(what) | Self::NoMatch(what) => f.write_str(what),
            Self::Busy => f.write_str("gpukilld is busy"),
            Self::Unavailable(what) => f.write_str(what),
            Self::TooSlow(what) => write!(f, "{what} took too long"),
            Self::Expired => f.write_str("the rest of the answer is gone"),
            Self::Internal => f.write_str("gpukilld made a mistake"),
        }
    }
}

impl Refusal {
    /// What the person can do next, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied { ask, .. } => Some(format!("ask {ask}")),
            // Where its log is only whoever asked can know.
            Self::Invalid(_) | Self::NoMatch(_) | Self::Internal => None,
            Self::Busy | Self::Expired => Some("try again".into()),
            Self::Unavailable(_) => Some("see gpukillctl status".into()),
            Self::TooSlow(_) => Some("ask for less: a shorter time, one GPU, one user".into()),
        }
    }
}

impl std::error::Error for Refusal {}
