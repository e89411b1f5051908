//! The calls that reset devices: plan, execute, follow.

use super::Session;
use gpukill_proto::kill::{MAX_SIGNAL_TIMEOUT_MS, OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::service::MAX_WAIT;

/// The maximum length of a selector, in bytes.
const MAX_SELECTOR_BYTES: usize = 1_024;

impl Session {
    /// Makes a plan.
    pub(crate) async fn reset_plan(
        &self,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        let request = validate(request)?;
        self.shared.resetter.plan(&self.caller, request).await
    }

    /// Starts the execution of a plan.
    pub(crate) async fn start_reset(&self, plan: PlanId) -> Result<OperationId, Refusal> {
        self.shared.resetter.execute(&self.caller, plan).await
    }

    /// Returns the current report.
    pub(crate) async fn reset_report(
        &self,
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal> {
        let mut report = self.shared.resetter.follow(&self.caller, operation).await?;
        if let Some(after) = after {
            let newer = report.wait_for(|report| report.version > after);
            // On a timeout, or at the end of the operation, the current report is the answer.
            let _ = tokio::time::timeout(MAX_WAIT, newer).await;
        }
        Ok(report.borrow().as_ref().clone())
    }
}

/// Checks the limits that any client respects.
fn validate(request: ResetRequest) -> Result<ResetRequest, Refusal> {
    if request
        .gpu
        .as_ref()
        .is_some_and(|text| text.len() > MAX_SELECTOR_BYTES)
    {
        let what = format!("--gpu: it is longer than {MAX_SELECTOR_BYTES} bytes");
        return Err(Refusal::Invalid(what));
    }
    let timeout_ms = request.signal_timeout_ms;
    if !(1..=MAX_SIGNAL_TIMEOUT_MS).contains(&timeout_ms) {
        let max_secs = MAX_SIGNAL_TIMEOUT_MS / 1_000;
        let what = format!("{timeout_ms} ms: the signal timeout must be 1 ms to {max_secs} s");
        return Err(Refusal::Invalid(what));
    }
    Ok(request)
}
