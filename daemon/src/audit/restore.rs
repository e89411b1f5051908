//! Puts a copy in the place of the store: taken part by part, looked over whole, and
//! only then put in place. What was there is set aside, and what its record has
//! beyond the copy's is carried over.

mod carry;

mod check;

mod prepared;

mod swap;

mod taken;

mod unpack;

pub(super) use prepared::{Prepared, Told};
pub(super) use swap::{finish, free_time, is_unfinished, old_place};
pub(crate) use taken::Taken;
pub use unpack::untrusted::copy;

use super::copy::contents;
use super::{Act, Inquiry, Order, Store};
use gpukill_proto::audit::{Contents, RestoreReport};
use gpukill_proto::refusal::Refusal;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// A copy that is to be put in place, and whoever waits until it is.
pub(super) struct Restoring {
    pub(super) prepared: Prepared,
    /// The act, as the record knows it.
    pub(super) act: super::ActId,
    /// What came of it, but for what is known only then.
    pub(super) told: Value,
    pub(super) answer: oneshot::Sender<Result<Restored, String>>,
}

/// What is in place now.
pub(super) struct Restored {
    /// Where what there was lies.
    pub(super) set_aside: PathBuf,
    /// Entries that were carried over.
    pub(super) carried: u64,
    /// What came of the act, as it is recorded.
    pub(super) outcome: String,
}

impl Store {
    /// Begins to take a copy of so many bytes. One at a time, with those that are
    /// made.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(crate) async fn take(&self, bytes: u64) -> Result<Taken, Refusal> {
        let place = self.place_of_a_copy()?;
        let directory = Arc::clone(&self.directory);
        let begun = move || Taken::begin(&directory, bytes, place);
        let begun = tokio::task::spawn_blocking(begun).await;
        begun.map_err(|_| Refusal::Internal)?
    }

    /// Says what it would put in place of what.
    ///
    /// # Errors
    /// Why it would not.
    pub(crate) async fn weigh_copy(&self, taken: Arc<Taken>) -> Result<RestoreReport, Refusal> {
        self.prepare(taken).await.map(|(_, report)| report)
    }

    /// Puts it in place, whether or not whoever asked still waits. It is recorded
    /// before and after.
    ///
    /// # Errors
    /// Why it is not done.
    pub(crate) async fn restore(
        &self,
        act: Act,
        taken: Arc<Taken>,
    ) -> Result<RestoreReport, Refusal> {
        let store = self.clone();
        let restored = tokio::spawn(async move {
            match store.prepare(taken).await {
                Ok((prepared, report)) => store.restore_on_record(act, prepared, report).await,
                Err(refusal) => {
                    store.refuse(act, refusal.to_string());
                    Err(refusal)
                }
            }
        });
        restored.await.map_err(|_| Refusal::Internal)?
    }

    async fn prepare(&self, taken: Arc<Taken>) -> Result<(Prepared, RestoreReport), Refusal> {
        let directory = Arc::clone(&self.directory);
        let made = tokio::task::spawn_blocking(move || Prepared::make(&directory, &taken)).await;
        let prepared = made.map_err(|_| Refusal::Internal)??;
        let report = RestoreReport {
            now: self.all_there_is().await,
            then: prepared.then(),
            host: prepared.manifest().host.clone(),
            made_at: prepared.manifest().made_at,
            carried: prepared.carried(),
            set_aside: None,
        };
        Ok((prepared, report))
    }

    /// `None` where it cannot be counted: that may be why it is replaced.
    async fn all_there_is(&self) -> Option<Contents> {
        let samples = self.ask(Inquiry::Samples, contents::all_within_time).await;
        let actions = self.ask(Inquiry::Audit, contents::actions).await;
        let (samples, actions) = (samples.ok()?, actions.ok()?);
        Some(Contents { actions, ..samples })
    }

    async fn restore_on_record(
        &self,
        act: Act,
        prepared: Prepared,
        report: RestoreReport,
    ) -> Result<RestoreReport, Refusal> {
        let store = self.clone();
        let copy = json!({
            "host": report.host,
            "at": report.made_at.to_rfc3339(),
            "holds": told(&report.then),
        });
        let plan = json!({
            "copy": copy,
            "replace": report.now.as_ref().map(told),
            "carry_over": report.carried,
        });
        let act = Act {
            plan: plan.to_string(),
            ..act
        };
        let open = tokio::task::spawn_blocking(move || store.intend(act)).await;
        let open = open.map_err(|_| Refusal::Internal)?.map_err(|why| {
            Refusal::Unavailable(format!(
                "nothing was restored: it cannot be recorded: {why}"
            ))
        })?;
        let outcome = match open.id() {
            Some(id) => self.put_in_place(prepared, id, copy).await,
            None => Err("the act is over".to_owned()),
        };
        match outcome {
            Ok(restored) => {
                open.settle("done", restored.outcome);
                Ok(RestoreReport {
                    carried: restored.carried,
                    set_aside: Some(restored.set_aside.display().to_string()),
                    ..report
                })
            }
            Err(why) => {
                open.settle("failed", json!({ "why": why }).to_string());
                Err(Refusal::Unavailable(why))
            }
        }
    }

    /// Has the writer put it in place while nobody reads.
    async fn put_in_place(
        &self,
        prepared: Prepared,
        act: super::ActId,
        told: Value,
    ) -> Result<Restored, String> {
        let _away = self.send_reader_away().await?;
        let (answer, answered) = oneshot::channel();
        let restoring = Restoring {
            prepared,
            act,
            told,
            answer,
        };
        let order = Order::Restore(Box::new(restoring));
        let sent = self.orders.try_send(order);
        sent.map_err(|_| "the store is behind".to_owned())?;
        answered.await.unwrap_or_else(|_| Err(super::CLOSED.into()))
    }

    /// The reader lets go of the files, until what this gives is dropped.
    async fn send_reader_away(&self) -> Result<SyncSender<()>, String> {
        let (stay, back) = sync_channel(0);
        let (gone, is_gone) = oneshot::channel();
        let away = Inquiry::Away { gone, back };
        let behind = || "too many questions wait for the store: try again".to_owned();
        self.questions.try_send(away).map_err(|_| behind())?;
        match tokio::time::timeout(AWAY_PATIENCE, is_gone).await {
            Ok(Ok(())) => Ok(stay),
            Ok(Err(_)) => Err(super::CLOSED.into()),
            Err(_) => Err(behind()),
        }
    }
}

/// How long the reader may take to let go: it answers what was asked before, each
/// within two seconds.
const AWAY_PATIENCE: Duration = Duration::from_secs(15);

/// As it is recorded.
fn told(contents: &Contents) -> Value {
    let mut told = contents::told(contents);
    if let Value::Object(fields) = &mut told {
        fields.insert("actions".into(), contents.actions.into());
    }
    told
}
