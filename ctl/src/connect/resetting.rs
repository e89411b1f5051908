//! The questions that reset devices: plan, carry out, follow.

use super::daemon::Daemon;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};

impl Daemon {
    /// What a reset would do, and what to call it when it is to be carried out.
    pub(crate) async fn plan_reset(
        &self,
        request: &ResetRequest,
        patience: Patience,
    ) -> Result<(Option<PlanId>, ResetPlan), Failure> {
        self.ask(patience, async |context| {
            self.client.plan_reset(context, request.clone()).await
        })
        .await
    }

    /// Begins what was planned.
    pub(crate) async fn reset(
        &self,
        plan: PlanId,
        patience: Patience,
    ) -> Result<OperationId, Failure> {
        self.ask(patience, async |context| {
            self.client.reset(context, plan).await
        })
        .await
    }

    /// How a reset stands: when something newer than version `after` is known, or
    /// after a while.
    pub(crate) async fn follow_reset(
        &self,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
    ) -> Result<ResetReport, Failure> {
        self.ask(patience, async |context| {
            self.client.follow_reset(context, operation, after).await
        })
        .await
    }
}
