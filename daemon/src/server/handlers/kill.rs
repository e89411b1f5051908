//! The calls that end processes: plan, execute, follow.

use super::super::kill_pages::{plan_page, report_page};
use super::{Session, lock};
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReport, KillReportPage, KillRequest, OperationId, PlanId,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_WAIT;
use std::sync::{Arc, Mutex};

/// The plan and the report that a connection may read more pages of.
#[derive(Clone, Default)]
pub(crate) struct PendingKillPages {
    plan: PendingPages<Arc<KillPlan>>,
    report: PendingPages<(OperationId, Arc<KillReport>)>,
}

/// Kept while there are more pages.
type PendingPages<T> = Arc<Mutex<Option<T>>>;

impl Session {
    /// Makes a plan, and returns its first page.
    pub(crate) async fn kill_plan(&self, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        // Before the scan that a plan needs.
        request.validate().map_err(Refusal::Invalid)?;
        let (id, plan) = self.shared.enforcer.plan(&self.caller, request).await?;
        let page = plan_page(id, &plan, 0, &self.caller, &self.shared.roles());
        // A plan without an id can only be read on this connection.
        let more = page.next.filter(|_| id.is_none()).map(|_| plan);
        *lock(&self.pending_kill.plan) = more;
        Ok(page)
    }

    /// Returns another page of a plan.
    pub(crate) async fn kill_plan_page(
        &self,
        plan: PlanId,
        start: u32,
    ) -> Result<KillPlanPage, Refusal> {
        let (id, plan) = if plan == PlanId::LAST {
            let kept = lock(&self.pending_kill.plan).clone();
            (None, kept.ok_or(Refusal::Expired)?)
        } else {
            let kept = self.shared.enforcer.get_plan(&self.caller, plan)?;
            (Some(plan), kept)
        };
        let roles = self.shared.roles();
        Ok(plan_page(id, &plan, start as usize, &self.caller, &roles))
    }

    /// Returns a page of the current report.
    pub(crate) async fn kill_report_page(
        &self,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        let mut followed = self.shared.enforcer.follow(&self.caller, operation)?;
        let report = if start == 0 {
            if let Some(after) = after {
                let newer = followed.report.wait_for(|report| report.version > after);
                // On a timeout, or at the end of the operation, the current report is the answer.
                let _ = tokio::time::timeout(MAX_WAIT, newer).await;
            }
            Arc::clone(&followed.report.borrow())
        } else {
            // The same report as the previous page: outcomes are inserted in between.
            let kept = lock(&self.pending_kill.report).clone();
            let kept = kept.filter(|(of, _)| *of == operation);
            kept.map(|(_, report)| report).ok_or(Refusal::Expired)?
        };
        let page = report_page(
            &report,
            &followed.plan,
            followed.is_own,
            start as usize,
            &self.caller,
            &self.shared.roles(),
        );
        // Kept only while there are more pages.
        *lock(&self.pending_kill.report) = page.next.map(|_| (operation, report));
        Ok(page)
    }
}
