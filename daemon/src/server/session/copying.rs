//! The calls by which admins copy the store and make it smaller.

use super::Session;
use crate::audit::{Act, ActKind, Made, asked_for_a_copy};
use gpukill_policy::access::Operation;
use gpukill_proto::audit::{Backup, CopyId, PruneReport};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The copy that a connection reads. It goes with the connection.
#[derive(Clone, Default)]
pub(super) struct Copies(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    last: u64,
    made: Option<Arc<Made>>,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Deletes what is older.
    pub(super) async fn prune_store(
        &self,
        before: Timestamp,
        is_dry_run: bool,
    ) -> Result<PruneReport, Refusal> {
        let act = Act {
            kind: ActKind::Prune,
            uid: self.caller.uid,
            asked: format!("--before {}", before.to_rfc3339()),
            plan: "{}".into(),
        };
        // Whoever may not is recorded for a dry run too: before each prune the client
        // asks for one.
        if let Err(refusal) = self.may_keep_store("delete from the store") {
            let by = self.caller.limit_group;
            self.shared.store.refuse(act, by, refusal.to_string());
            return Err(refusal);
        }
        is_past(before, self.shared.clock.now())?;
        let report = self.shared.store.weigh(before).await?;
        if is_dry_run {
            return Ok(report);
        }
        self.shared.store.prune(act, before, report).await
    }

    /// Makes a copy, in the place of any that this connection had.
    pub(super) async fn make_backup(&self) -> Result<Backup, Refusal> {
        let (store, uid) = (&self.shared.store, self.caller.uid);
        if let Err(refusal) = self.may_keep_store("copy the store") {
            let by = self.caller.limit_group;
            store.refuse(asked_for_a_copy(uid), by, refusal.to_string());
            return Err(refusal);
        }
        // There is one place for all copies.
        self.copies.lock().made = None;
        let host = self.shared.state.borrow().snapshot.host.clone();
        let made = Arc::new(store.copy_for(uid, host).await?);
        let bytes = made.bytes();
        let mut kept = self.copies.lock();
        kept.last += 1;
        kept.made = Some(made);
        Ok(Backup {
            id: CopyId(kept.last),
            bytes,
        })
    }

    /// Gives a part of it.
    pub(super) async fn give_part(&self, id: CopyId, offset: u64) -> Result<Vec<u8>, Refusal> {
        let made = {
            let kept = self.copies.lock();
            let made = kept.made.clone();
            made.filter(|_| kept.last == id.0)
        };
        let made = made.ok_or(Refusal::Expired)?;
        let part = tokio::task::spawn_blocking(move || made.part(offset)).await;
        let part = part.map_err(|_| Refusal::Internal)?;
        part.map_err(|error| Refusal::Unavailable(format!("the copy cannot be read: {error}")))
    }

    /// May the caller copy the store, and delete from it?
    fn may_keep_store(&self, asked: &str) -> Result<(), Refusal> {
        let admins = self.shared.authority.admins();
        self.may(Operation::KeepStore, asked, &admins)
    }
}

/// Nothing is older than what comes: whoever types that means something else.
fn is_past(before: Timestamp, now: Timestamp) -> Result<(), Refusal> {
    if before <= now {
        return Ok(());
    }
    let (before, now) = (before.to_rfc3339(), now.to_rfc3339());
    Err(Refusal::Invalid(format!(
        "{before} is yet to come: it is {now}"
    )))
}
