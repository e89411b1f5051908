//! Why a replay ends early.

use super::{Bounds, MOST_COUNTED};
use std::fmt;

/// It would keep too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMuch {
    /// So many policies are about so many processes at once.
    Pairs(usize, usize),
    /// Violations at once.
    Violations,
    /// What rules look back over.
    LookedBack,
    /// Processes in all.
    Processes,
    /// What cannot be judged.
    NotJudged,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bounds {
            findings: _,
            violations,
            looked_back,
        } = Bounds::TRIED;
        match self {
            Self::Pairs(policies, processes) => write!(
                f,
                "{policies} rules for {processes} processes at once are too many to try: \
                 try fewer rules"
            ),
            Self::Violations => write!(
                f,
                "these rules tell of more than {violations} violations at once: try fewer \
                 rules, or a shorter time"
            ),
            Self::LookedBack => write!(
                f,
                "these rules look back over more than {looked_back} jobs and processes at \
                 once: try fewer rules, or a shorter time"
            ),
            Self::Processes => write!(
                f,
                "more than {MOST_COUNTED} processes used a GPU in this time: try a shorter one"
            ),
            Self::NotJudged => write!(
                f,
                "more than {MOST_COUNTED} things cannot be judged by these rules: try fewer \
                 rules, or a shorter time"
            ),
        }
    }
}

impl std::error::Error for TooMuch {}
