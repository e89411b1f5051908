//! The questions that reset devices: plan, carry out, follow.

use super::daemon::{Daemon, question};
use super::meanwhile::Meanwhile;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};

impl Daemon {
    /// What a reset would do, and what to call it when it is to be carried out.
    pub(crate) fn plan_reset(
        &self,
        request: &ResetRequest,
        patience: Patience,
    ) -> Result<(Option<PlanId>, ResetPlan), Failure> {
        question!(
            self,
            patience,
            PlanReset {
                request: request.clone()
            }
        )
    }

    /// Begins what was planned.
    pub(crate) fn reset(
        &self,
        plan: PlanId,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<OperationId, Failure> {
        question!(self, patience, meanwhile, Reset { plan })
    }

    /// How a reset stands: when something newer than version `after` is known, or
    /// after a while.
    pub(crate) fn follow_reset(
        &self,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<ResetReport, Failure> {
        question!(self, patience, meanwhile, FollowReset { operation, after })
    }
}
