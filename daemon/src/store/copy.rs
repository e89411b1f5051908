//! Operations on the whole store: count its contents, prune it, copy it.

pub(super) mod archive;
pub(super) mod contents;
mod store_copy;

pub(crate) use store_copy::StoreCopy;
pub(super) use store_copy::{
    TempDirectory, check_free_space, copy_directory, remove_unfinished_copy,
};

use super::writer::{CLOCK_JUMPED, RequestedPrune};
use super::{Action, ReaderCommand, Store, WriterCommand};
use gpukill_proto::audit::PruneReport;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

impl Store {
    /// Counts the rows that a prune before this moment would delete, and the rows that would stay.
    pub(crate) async fn count_prune(&self, before: Timestamp) -> Result<PruneReport, Refusal> {
        let (answer, answered) = oneshot::channel();
        let order = WriterCommand::CheckClock(answer);
        self.commands.try_send(order).map_err(|_| Refusal::Busy)?;
        if !answered.await.map_err(|_| Refusal::Internal)? {
            return Err(Refusal::Unavailable(CLOCK_JUMPED.into()));
        }
        let split = move |file: &mut _| contents::count_split(file, before);
        let (deleted, mut left) = self.run_query(ReaderCommand::Samples, split).await?;
        left.actions = self
            .run_query(ReaderCommand::Audit, contents::count_actions)
            .await?;
        Ok(PruneReport { deleted, left })
    }

    /// Deletes the rows that were counted before, even if the caller goes away. The action is
    /// recorded before and after.
    ///
    /// # Errors
    /// The reason why nothing, or not everything, was deleted.
    pub(crate) async fn prune(
        &self,
        action: Action,
        before: Timestamp,
        report: PruneReport,
    ) -> Result<PruneReport, Refusal> {
        let store = self.clone();
        let pruned = tokio::spawn(async move {
            store.prune_recorded(action, before, &report).await?;
            Ok(report)
        });
        pruned.await.map_err(|_| Refusal::Internal)?
    }

    async fn prune_recorded(
        &self,
        action: Action,
        before: Timestamp,
        report: &PruneReport,
    ) -> Result<(), Refusal> {
        let store = self.clone();
        let counted = contents::contents_json(&report.deleted);
        let action = Action {
            plan: json!({ "delete": counted }).to_string(),
            ..action
        };
        let open = tokio::task::spawn_blocking(move || store.record_intent(action)).await;
        let open = open.map_err(|_| Refusal::Internal)?.map_err(|why| {
            Refusal::Unavailable(format!("nothing was deleted: it cannot be recorded: {why}"))
        })?;
        let (answer, answered) = oneshot::channel();
        let order = WriterCommand::Prune(RequestedPrune::new(before, answer));
        let outcome = match self.commands.try_send(order) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(super::CLOSED.into())),
            Err(_) => Err("the store is behind".into()),
        };
        match outcome {
            Ok(()) => {
                open.settle("done", json!({ "deleted": counted }).to_string());
                Ok(())
            }
            Err(why) => {
                open.settle("failed", json!({ "why": why }).to_string());
                Err(Refusal::Unavailable(why))
            }
        }
    }

    /// Acquires the permit of the one copy that may be in progress, a backup or a restore.
    pub(super) fn acquire_copy_permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = Arc::clone(&self.copy_permits).try_acquire_owned();
        permit.map_err(|_| {
            Refusal::Unavailable("another copy is in progress: one at a time".to_owned())
        })
    }

    /// Makes a copy; `host` names the host in it. One at a time.
    pub(crate) async fn make_copy(&self, host: String) -> Result<StoreCopy, Refusal> {
        let permit = self.acquire_copy_permit()?;
        let directory = Arc::clone(&self.directory);
        let made =
            tokio::task::spawn_blocking(move || StoreCopy::create(&directory, &host, permit));
        let made = made.await.map_err(|_| Refusal::Internal)?;
        made.map_err(Refusal::Unavailable)
    }
}
