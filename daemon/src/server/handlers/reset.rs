//! The calls that reset devices: plan, execute, follow.

use super::Session;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::service::MAX_WAIT;

impl Session {
    pub(crate) async fn reset_plan(
        &self,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        request.validate().map_err(Refusal::Invalid)?;
        self.shared.resetter.plan(&self.caller, request).await
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
