//! Calls that reset devices: plan, start, follow.

use super::daemon::{Daemon, question};
use super::timeout::RequestTimeout;
use super::wait_hooks::WaitHooks;
use crate::exit::Error;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};

impl Daemon {
    /// Plans a reset. Returns the plan, and its id when it can be carried out.
    pub(crate) fn plan_reset(
        &self,
        request: &ResetRequest,
        patience: RequestTimeout,
    ) -> Result<(Option<PlanId>, ResetPlan), Error> {
        question!(
            self,
            patience,
            PlanReset {
                request: request.clone()
            }
        )
    }

    /// Starts a planned reset.
    pub(crate) fn reset(
        &self,
        plan: PlanId,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<OperationId, Error> {
        question!(self, patience, meanwhile, Reset { plan })
    }

    /// The state of a reset, as soon as it is newer than version `after`, or after a while.
    pub(crate) fn follow_reset(
        &self,
        operation: OperationId,
        after: Option<u64>,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<ResetReport, Error> {
        question!(self, patience, meanwhile, FollowReset { operation, after })
    }
}
