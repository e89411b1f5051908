//! The reasons why the daemon refuses a request, in words for people.

use serde::{Deserialize, Serialize};

/// A refusal or a failure. Every answer of the service carries one of these, because errors of
/// the transport lose their kind on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller lacks a right.
    Denied {
        /// What the caller requested, to follow "cannot".
        asked: String,
        /// The people who may do it. The text follows "ask".
        ask: String,
    },
    /// The request is invalid; says where.
    Invalid(String),
    /// The request matches nothing.
    NoMatch(String),
    /// Too many requests at present: try again.
    Busy,
    /// A part of the daemon that the request needs is unavailable; says which.
    Unavailable(String),
    /// The request took longer than the daemon allows; names the request.
    TooSlow(String),
    /// The rest of an answer was requested after the daemon had discarded it.
    Expired,
    /// A bug in the daemon; its log has the details.
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
            Self::Expired => f.write_str("the rest of the answer has expired"),
            Self::Internal => f.write_str("gpukilld had an internal error"),
        }
    }
}

impl Refusal {
    /// What the caller can do next, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied { ask, .. } => Some(format!("ask {ask}")),
            // Only the client knows where the daemon's log is.
            Self::Invalid(_) | Self::NoMatch(_) | Self::Internal => None,
            Self::Busy | Self::Expired => Some("try again".into()),
            Self::Unavailable(_) => Some("see gpukillctl status".into()),
            Self::TooSlow(_) => Some("ask for less: a shorter time, one GPU, one user".into()),
        }
    }
}

impl std::error::Error for Refusal {}
