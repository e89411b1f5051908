//! How a reset went as a whole.

use gpukill_proto::reset::{ResetEnding, ResetFate, ResetPlan, ResetReport};

/// How it went as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// All were reset.
    All,
    /// Some were reset, and some were not.
    Part,
    /// None was: none can be.
    Unsupported,
    /// None was, for other reasons.
    Failed,
}

/// How it went.
#[must_use]
pub fn success(report: &ResetReport) -> Success {
    let (mut reset, mut unsupported, mut failed) = (0, 0, 0);
    for outcome in &report.outcomes {
        match outcome.ending {
            ResetEnding::Reset(_) => reset += 1,
            ResetEnding::Unsupported(_) => unsupported += 1,
            ResetEnding::Blocked(_) | ResetEnding::Failed(_) | ResetEnding::Unreachable(_) => {
                failed += 1;
            }
        }
    }
    match (reset, unsupported, failed) {
        (0, 1.., 0) => Success::Unsupported,
        (0, _, _) => Success::Failed,
        (_, 0, 0) => Success::All,
        (_, _, _) => Success::Part,
    }
}

/// How a plan that resets nothing has gone.
#[must_use]
pub fn refused(plan: &ResetPlan) -> Success {
    let is_unsupported = |fate: &ResetFate| match fate {
        ResetFate::Unsupported(_) => true,
        ResetFate::Reset | ResetFate::Blocked => false,
    };
    let mut fates = plan.devices.iter().map(|target| &target.fate);
    if !plan.devices.is_empty() && fates.all(is_unsupported) {
        Success::Unsupported
    } else {
        Success::Failed
    }
}
