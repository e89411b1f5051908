//! The calls that reset devices: plan, carry out, follow.

use super::Session;
use gpukill_proto::kill::{LONGEST_PATIENCE_MS, OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::service::LONGEST_WAIT;

/// The longest selector, in bytes.
const LONGEST_TEXT: usize = 1_024;

impl Session {
    /// Makes a plan.
    pub(super) async fn reset_plan(
        &self,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        let request = checked(request)?;
        self.shared.resetter.plan(&self.caller, request).await
    }

    /// Begins what was planned.
    pub(super) async fn begin_reset(&self, plan: PlanId) -> Result<OperationId, Refusal> {
        self.shared.resetter.carry_out(&self.caller, plan).await
    }

    /// How it stands.
    pub(super) async fn reset_report(
        &self,
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal> {
        let mut report = self.shared.resetter.follow(&self.caller, operation).await?;
        if let Some(after) = after {
            let newer = report.wait_for(|report| report.version > after);
            // Too long, or it is over: answer with what there is.
            let _ = tokio::time::timeout(LONGEST_WAIT, newer).await;
        }
        Ok(report.borrow().as_ref().clone())
    }
}

/// What any client keeps to.
fn checked(request: ResetRequest) -> Result<ResetRequest, Refusal> {
    if request
        .gpu
        .as_ref()
        .is_some_and(|text| text.len() > LONGEST_TEXT)
    {
        let what = format!("--gpu: it is longer than {LONGEST_TEXT} bytes");
        return Err(Refusal::Invalid(what));
    }
    let patience = request.patience_ms;
    if !(1..=LONGEST_PATIENCE_MS).contains(&patience) {
        let most = LONGEST_PATIENCE_MS / 1_000;
        let what = format!("{patience} ms: a signal is given 1 ms to {most} s");
        return Err(Refusal::Invalid(what));
    }
    Ok(request)
}
