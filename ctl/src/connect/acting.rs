//! The questions that end processes: plan, carry out, follow.

use super::daemon::{Daemon, question};
use super::meanwhile::Meanwhile;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId, Stage,
};
use gpukill_proto::refusal::Refusal;

impl Daemon {
    /// Whom a kill would end: all pages of one plan, and what to call it when it
    /// is to be carried out.
    pub(crate) fn plan_kill(
        &self,
        request: &KillRequest,
        patience: Patience,
    ) -> Result<(Option<PlanId>, KillPlan), Failure> {
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
            advances(start, page.next)?;
            plan.targets.extend(page.plan.targets);
            missing = page.next;
        }
        Ok((id, plan))
    }

    /// Begins what was planned.
    pub(crate) fn kill(
        &self,
        plan: PlanId,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<OperationId, Failure> {
        question!(self, patience, meanwhile, Kill { plan })
    }

    /// How a kill stands: when something newer than version `after` is known, or
    /// after a while. It is whole where it is over; before, it is the first page.
    pub(crate) fn follow_kill(
        &self,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<KillReportPage, Failure> {
        let mut whole = self.report_page((operation, after, 0), patience, meanwhile)?;
        if !is_over(whole.report.stage) {
            return Ok(whole);
        }
        while let Some(start) = whole.next {
            let page = self.report_page((operation, None, start), patience, meanwhile)?;
            if page.report.version != whole.report.version {
                return Err(Refusal::Expired.into());
            }
            advances(start, page.next)?;
            whole.report.outcomes.extend(page.report.outcomes);
            whole.next = page.next;
        }
        Ok(whole)
    }

    fn report_page(
        &self,
        (operation, after, start): (OperationId, Option<u64>, u32),
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<KillReportPage, Failure> {
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

fn advances(start: u32, next: Option<u32>) -> Result<(), Failure> {
    match next {
        Some(next) if next <= start => Err(Failure::Broken("its pages do not advance".into())),
        Some(_) | None => Ok(()),
    }
}
