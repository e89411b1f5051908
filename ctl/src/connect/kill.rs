//! Calls that end processes: plan, start, follow.

use super::daemon::{Daemon, question};
use super::timeout::RequestTimeout;
use super::wait_hooks::WaitHooks;
use crate::exit::Error;
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId, Stage,
};
use gpukill_proto::refusal::Refusal;

impl Daemon {
    /// Plans a kill. Returns all pages of the plan, and its id when it can be carried out.
    pub(crate) fn plan_kill(
        &self,
        request: &KillRequest,
        patience: RequestTimeout,
    ) -> Result<(Option<PlanId>, KillPlan), Error> {
        let KillPlanPage { id, mut plan, next } = question!(
            self,
            patience,
            PlanKill {
                request: request.clone()
            }
        )?;
        let mut missing = next;
        while let Some(start) = missing {
            self.messages
                .debug(|| format!("asking for the targets from {start} on"));
            let of = id.unwrap_or(PlanId::LAST);
            let page = question!(self, patience, MoreOfKillPlan { plan: of, start })?;
            check_page_advances(start, page.next)?;
            plan.targets.extend(page.plan.targets);
            missing = page.next;
        }
        Ok((id, plan))
    }

    /// Starts a planned kill.
    pub(crate) fn kill(
        &self,
        plan: PlanId,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<OperationId, Error> {
        question!(self, patience, meanwhile, Kill { plan })
    }

    /// The state of a kill, as soon as it is newer than version `after`, or after a while. The
    /// report is complete when the kill is over; before, it is the first page.
    pub(crate) fn follow_kill(
        &self,
        operation: OperationId,
        after: Option<u64>,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<KillReportPage, Error> {
        let mut whole = self.report_page((operation, after, 0), patience, meanwhile)?;
        if !is_over(whole.report.stage) {
            return Ok(whole);
        }
        while let Some(start) = whole.next {
            let page = self.report_page((operation, None, start), patience, meanwhile)?;
            if page.report.version != whole.report.version {
                return Err(Refusal::Expired.into());
            }
            check_page_advances(start, page.next)?;
            whole.report.outcomes.extend(page.report.outcomes);
            whole.next = page.next;
        }
        Ok(whole)
    }

    fn report_page(
        &self,
        (operation, after, start): (OperationId, Option<u64>, u32),
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<KillReportPage, Error> {
        question!(
            self,
            patience,
            meanwhile,
            FollowKill {
                operation,
                after,
                start
            }
        )
    }
}

/// Whether nothing more will happen.
pub(crate) const fn is_over(stage: Stage) -> bool {
    match stage {
        Stage::Done | Stage::Interrupted => true,
        Stage::Ending | Stage::Releasing => false,
    }
}

fn check_page_advances(start: u32, next: Option<u32>) -> Result<(), Error> {
    match next {
        Some(next) if next <= start => {
            Err(Error::ConnectionLost("its pages do not advance".into()))
        }
        Some(_) | None => Ok(()),
    }
}
