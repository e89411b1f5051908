//! The questions about the guard.

use super::Doing;
use super::daemon::Daemon;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::guard::{ReplayReport, ReplayRequest, Snoozed, ViolationPage, ViolationQuery};

impl Daemon {
    /// One page of what the guard decided.
    pub(crate) async fn violations(
        &self,
        query: &ViolationQuery,
        patience: Patience,
    ) -> Result<ViolationPage, Failure> {
        self.ask(patience, async |context| {
            self.client.violations(context, query.clone()).await
        })
        .await
    }

    /// Asks for more time before the job of this process is ended.
    pub(crate) async fn snooze(
        &self,
        pid: u32,
        doing: Doing,
        patience: Patience,
    ) -> Result<Vec<Snoozed>, Failure> {
        let is_dry_run = doing == Doing::Saying;
        self.ask(patience, async |context| {
            self.client.snooze(context, pid, is_dry_run).await
        })
        .await
    }

    /// What rules would have done.
    pub(crate) async fn replay_rules(
        &self,
        request: &ReplayRequest,
        patience: Patience,
    ) -> Result<ReplayReport, Failure> {
        self.ask(patience, async |context| {
            self.client.replay_rules(context, request.clone()).await
        })
        .await
    }
}
