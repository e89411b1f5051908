//! The overall result of a reset.

use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetReport, ResetResult};

/// The overall result of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetCompletion {
    /// All devices were reset.
    All,
    /// Some devices were reset, and some were not.
    Partial,
    /// No device was reset, because none supports it.
    Unsupported,
    /// No device was reset, for other reasons.
    Failed,
}

/// Returns the overall result of a report.
#[must_use]
pub fn completion(report: &ResetReport) -> ResetCompletion {
    let (mut reset, mut unsupported, mut failed) = (0, 0, 0);
    for outcome in &report.outcomes {
        match outcome.result {
            ResetResult::Reset(_) => reset += 1,
            ResetResult::Unsupported(_) => unsupported += 1,
            ResetResult::Blocked(_) | ResetResult::Failed(_) | ResetResult::Unreachable(_) => {
                failed += 1;
            }
        }
    }
    match (reset, unsupported, failed) {
        (0, 1.., 0) => ResetCompletion::Unsupported,
        (0, _, _) => ResetCompletion::Failed,
        (_, 0, 0) => ResetCompletion::All,
        (_, _, _) => ResetCompletion::Partial,
    }
}

/// Returns the overall result of a plan that resets nothing.
#[must_use]
pub fn refused_completion(plan: &ResetPlan) -> ResetCompletion {
    let is_unsupported = |action: &PlannedReset| match action {
        PlannedReset::Unsupported(_) => true,
        PlannedReset::Reset | PlannedReset::Blocked => false,
    };
    let mut actions = plan.devices.iter().map(|target| &target.action);
    if !plan.devices.is_empty() && actions.all(is_unsupported) {
        ResetCompletion::Unsupported
    } else {
        ResetCompletion::Failed
    }
}
