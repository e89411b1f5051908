//! Why a replay ends early.

use super::{EvaluationBounds, MAX_COUNTED};
use std::fmt;

/// The replay would keep too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayError {
    /// Too many policies for this many processes at once.
    Pairs(usize, usize),
    /// Too many violations at once.
    Violations,
    /// Too many windows that rules look back over.
    LookedBack,
    /// Too many processes in total.
    Processes,
    /// Too many subjects that cannot be evaluated.
    NotJudged,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EvaluationBounds {
            findings: _,
            violations,
            lookback_windows: looked_back,
        } = EvaluationBounds::TRIAL;
        match self {
            Self::Pairs(policies, processes) => write!(
                f,
                "{policies} rules for {processes} processes at once are too many to try: \
                 try fewer rules"
            ),
            Self::Violations => write!(
                f,
                "these rules find more than {violations} violations at once: try fewer rules, or \
                a shorter time"
            ),
            Self::LookedBack => write!(
                f,
                "these rules look back over more than {looked_back} jobs and processes at \
                 once: try fewer rules, or a shorter time"
            ),
            Self::Processes => write!(
                f,
                "more than {MAX_COUNTED} processes used a GPU in this time: try a shorter one"
            ),
            Self::NotJudged => write!(
                f,
                "more than {MAX_COUNTED} subjects cannot be evaluated by these rules: try fewer \
                rules, or a shorter time"
            ),
        }
    }
}

impl std::error::Error for ReplayError {}
