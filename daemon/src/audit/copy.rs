//! The store as a whole: counted, made smaller, copied.

pub(super) mod archive;

pub(super) mod contents;

mod made;

pub(crate) use made::Made;
pub(super) use made::{LeftOver, clean, leave_room, workplace};

use super::writer::{Pruning, UNSTEADY};
use super::{Act, Inquiry, Order, Store};
use gpukill_proto::audit::PruneReport;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

impl Store {
    /// What is older than this moment and would be deleted, and what would stay.
    ///
    /// # Errors
    /// Why it cannot be told.
    pub(crate) async fn weigh(&self, before: Timestamp) -> Result<PruneReport, Refusal> {
        let (answer, answered) = oneshot::channel();
        let order = Order::Clock(answer);
        self.orders.try_send(order).map_err(|_| Refusal::Busy)?;
        if !answered.await.map_err(|_| Refusal::Internal)? {
            return Err(Refusal::Unavailable(UNSTEADY.into()));
        }
        let split = move |file: &mut _| contents::split(file, before);
        let (deleted, mut left) = self.ask(Inquiry::Samples, split).await?;
        left.actions = self.ask(Inquiry::Audit, contents::actions).await?;
        Ok(PruneReport { deleted, left })
    }

    /// Deletes it, as counted before, whether or not whoever asked still waits. It
    /// is recorded before and after.
    ///
    /// # Errors
    /// Why it is not done, or not to its end.
    pub(crate) async fn prune(
        &self,
        act: Act,
        before: Timestamp,
        report: PruneReport,
    ) -> Result<PruneReport, Refusal> {
        let store = self.clone();
        let pruned = tokio::spawn(async move {
            store.prune_on_record(act, before, &report).await?;
            Ok(report)
        });
        pruned.await.map_err(|_| Refusal::Internal)?
    }

    async fn prune_on_record(
        &self,
        act: Act,
        before: Timestamp,
        report: &PruneReport,
    ) -> Result<(), Refusal> {
        let store = self.clone();
        let counted = contents::told(&report.deleted);
        let act = Act {
            plan: json!({ "delete": counted }).to_string(),
            ..act
        };
        let open = tokio::task::spawn_blocking(move || store.intend(act)).await;
        let open = open.map_err(|_| Refusal::Internal)?.map_err(|why| {
            Refusal::Unavailable(format!("nothing was deleted: it cannot be recorded: {why}"))
        })?;
        let (answer, answered) = oneshot::channel();
        let order = Order::Prune(Pruning::new(before, answer));
        let outcome = match self.orders.try_send(order) {
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

    /// The place of the one copy that may be on its way, in or out.
    pub(super) fn place_of_a_copy(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.copying).try_acquire_owned();
        place.map_err(|_| {
            Refusal::Unavailable("another copy is on its way: one at a time".to_owned())
        })
    }

    /// Makes a copy, in the words of whose box it is. One at a time.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn copy(&self, host: String) -> Result<Made, Refusal> {
        let place = self.place_of_a_copy()?;
        let directory = Arc::clone(&self.directory);
        let made = tokio::task::spawn_blocking(move || Made::make(&directory, &host, place));
        let made = made.await.map_err(|_| Refusal::Internal)?;
        made.map_err(Refusal::Unavailable)
    }
}
