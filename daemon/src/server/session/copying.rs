//! The calls by which admins copy the store, put copies in its place, and make it
//! smaller.

use super::Session;
use crate::audit::{Act, ActKind, Made, Taken, asked_for_a_copy};
use gpukill_policy::access::Operation;
use gpukill_proto::audit::{Backup, CopyId, PruneReport, RestoreReport};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The copy that a connection reads, and the one that it sends. They go with the
/// connection.
#[derive(Clone, Default)]
pub(super) struct Copies(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    last: u64,
    made: Option<Arc<Made>>,
    /// One on its way in, and its number.
    taken: Option<(u64, Taken)>,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of both: there is one place for all copies.
    fn give_up(&self) {
        let mut kept = self.lock();
        (kept.made, kept.taken) = (None, None);
    }

    /// Gives out the copy that is sent; it is to be kept again.
    fn taken(&self, id: CopyId) -> Result<Taken, Refusal> {
        let mut kept = self.lock();
        let taken = kept.taken.take_if(|(number, _)| *number == id.0);
        taken.map(|(_, taken)| taken).ok_or(Refusal::Expired)
    }

    fn keep(&self, CopyId(number): CopyId, taken: Taken) {
        let mut kept = self.lock();
        // Another one may have been begun meanwhile.
        if kept.last == number {
            kept.taken = Some((number, taken));
        }
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
            self.shared.store.refuse(act, refusal.to_string());
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
            store.refuse(asked_for_a_copy(uid), refusal.to_string());
            return Err(refusal);
        }
        self.copies.give_up();
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

    /// Begins to take one, in the place of any that this connection had.
    pub(super) async fn take_copy(&self, bytes: u64) -> Result<CopyId, Refusal> {
        if let Err(refusal) = self.may_keep_store("put a copy in the store's place") {
            self.refuse_restore(&refusal);
            return Err(refusal);
        }
        self.copies.give_up();
        let taken = self.shared.store.take(bytes).await;
        let taken = taken.inspect_err(|refusal| self.refuse_restore(refusal))?;
        let mut kept = self.copies.lock();
        kept.last += 1;
        kept.taken = Some((kept.last, taken));
        Ok(CopyId(kept.last))
    }

    /// Takes a part of it. What fails ends it.
    pub(super) async fn take_part(
        &self,
        id: CopyId,
        offset: u64,
        part: Vec<u8>,
    ) -> Result<(), Refusal> {
        // Whoever sends two parts at once has lost count of them.
        let mut taken = self.copies.taken(id)?;
        let added = tokio::task::spawn_blocking(move || taken.add(offset, &part).map(|()| taken));
        let taken = added.await.map_err(|_| Refusal::Internal)??;
        self.copies.keep(id, taken);
        Ok(())
    }

    /// Puts it in place, or says what that would do. It can be said again.
    pub(super) async fn put_in_place(
        &self,
        id: CopyId,
        is_dry_run: bool,
    ) -> Result<RestoreReport, Refusal> {
        self.may_keep_store("put a copy in the store's place")?;
        let taken = Arc::new(self.copies.taken(id)?);
        if !is_dry_run {
            let act = self.restore_of(format!("a copy of {} bytes", taken.bytes()));
            return self.shared.store.restore(act, taken).await;
        }
        let report = self.shared.store.weigh_copy(Arc::clone(&taken)).await?;
        if let Some(taken) = Arc::into_inner(taken) {
            self.copies.keep(id, taken);
        }
        Ok(report)
    }

    /// Refusals alike are told as one, so none tells the length of its copy.
    fn refuse_restore(&self, refusal: &Refusal) {
        let act = self.restore_of("a copy".to_owned());
        self.shared.store.refuse(act, refusal.to_string());
    }

    fn restore_of(&self, asked: String) -> Act {
        Act {
            kind: ActKind::Restore,
            uid: self.caller.uid,
            asked,
            plan: "{}".into(),
        }
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
