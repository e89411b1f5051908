//! Why a replay ends early.

use super::{EvaluationBounds, MAX_COUNTED};

/// The replay would keep too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Too many policies for this many processes at once.
    #[error("{0} rules for {1} processes at once are too many to try: try fewer rules")]
    Pairs(usize, usize),
    /// Too many violations at once.
    #[error(
        "these rules find more than {} violations at once: try fewer rules, or a shorter time",
        EvaluationBounds::TRIAL.violations
    )]
    Violations,
    /// Too many windows that rules look back over.
    #[error(
        "these rules look back over more than {} jobs and processes at once: try fewer rules, or \
         a shorter time",
        EvaluationBounds::TRIAL.lookback_windows
    )]
    LookedBack,
    /// Too many processes in total.
    #[error("more than {MAX_COUNTED} processes used a GPU in this time: try a shorter one")]
    Processes,
    /// Too many subjects that cannot be evaluated.
    #[error(
        "more than {MAX_COUNTED} subjects cannot be evaluated by these rules: try fewer rules, or \
         a shorter time"
    )]
    NotJudged,
}
