//! The reasons why the daemon refuses a request, in words for people.

use serde::{Deserialize, Serialize};

/// A refusal or a failure. Every answer of the service carries one of these, because errors of
/// the transport lose their kind on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The caller lacks a right.
    #[error("cannot {asked}")]
    Denied {
        /// The request of the caller, to follow "cannot".
        asked: String,
        /// The people who may do it. The text follows "ask".
        ask: String,
    },
    /// The request is invalid; says where.
    #[error("{0}")]
    Invalid(String),
    /// The request matches nothing.
    #[error("{0}")]
    NoMatch(String),
    /// Too many requests at present: try again.
    #[error("gpukilld is busy")]
    Busy,
    /// A part of the daemon that the request needs is unavailable; says which.
    #[error("{0}")]
    Unavailable(String),
    /// The request took longer than the daemon allows; names the request.
    #[error("{0} took too long")]
    TooSlow(String),
    /// The rest of an answer was requested after the daemon had discarded it.
    #[error("the rest of the answer has expired")]
    Expired,
    /// A bug in the daemon; its log has the details.
    #[error("gpukilld had an internal error")]
    Internal,
}

impl Refusal {
    /// The names of all reasons in counters.
    #[rustfmt::skip]
    pub const REASONS: [&'static str; 8] = [
        "denied", "invalid", "no_match", "busy", "unavailable", "too_slow", "expired", "internal",
    ];

    /// The name of the reason in counters.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "denied",
            Self::Invalid(_) => "invalid",
            Self::NoMatch(_) => "no_match",
            Self::Busy => "busy",
            Self::Unavailable(_) => "unavailable",
            Self::TooSlow(_) => "too_slow",
            Self::Expired => "expired",
            Self::Internal => "internal",
        }
    }

    /// The next step for the caller, if there is one.
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
