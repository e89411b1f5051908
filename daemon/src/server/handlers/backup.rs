//! The calls with which admins back up and prune the store.

use super::{Session, lock};
use crate::store::{Action, ActionKind, StoreCopy, asked_for_a_copy};
use gpukill_policy::access::Operation;
use gpukill_proto::audit::{Backup, CopyId, PruneReport};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Mutex};

/// The backup that a connection reads. It is deleted with the connection.
#[derive(Clone, Default)]
pub(crate) struct ConnectionBackup(Arc<Mutex<BackupState>>);

#[derive(Default)]
struct BackupState {
    last: u64,
    current: Option<Arc<StoreCopy>>,
}

impl Session {
    /// Deletes everything older than `before`.
    pub(crate) async fn prune_store(
        &self,
        before: Timestamp,
        is_dry_run: bool,
    ) -> Result<PruneReport, Refusal> {
        let action = Action {
            kind: ActionKind::Prune,
            uid: self.caller.uid,
            request: format!("--before {}", before.to_rfc3339()),
            plan: "{}".into(),
        };
        // A missing right is recorded for a dry run too: the client sends a dry run before each
        // prune.
        if let Err(refusal) = self.may_manage_store("delete from the store") {
            let by = self.caller.limit_group;
            self.shared
                .store
                .record_refusal(action, by, refusal.to_string());
            return Err(refusal);
        }
        check_is_past(before, self.shared.clock.now())?;
        let report = self.shared.store.count_prune(before).await?;
        if is_dry_run {
            return Ok(report);
        }
        self.shared.store.prune(action, before, report).await
    }

    /// Makes a backup, which replaces the previous one of this connection.
    pub(crate) async fn make_backup(&self) -> Result<Backup, Refusal> {
        let (store, uid) = (&self.shared.store, self.caller.uid);
        if let Err(refusal) = self.may_manage_store("copy the store") {
            let by = self.caller.limit_group;
            store.record_refusal(asked_for_a_copy(uid), by, refusal.to_string());
            return Err(refusal);
        }
        // The store has room for one backup.
        lock(&self.backup.0).current = None;
        let host = self.shared.state.borrow().snapshot.host.clone();
        let made = Arc::new(store.make_recorded_copy(uid, host).await?);
        let bytes = made.bytes();
        let mut kept = lock(&self.backup.0);
        kept.last += 1;
        kept.current = Some(made);
        Ok(Backup {
            id: CopyId(kept.last),
            bytes,
        })
    }

    /// Returns a part of the backup.
    pub(crate) async fn read_backup_part(
        &self,
        id: CopyId,
        offset: u64,
    ) -> Result<Vec<u8>, Refusal> {
        let made = {
            let kept = lock(&self.backup.0);
            let made = kept.current.clone();
            made.filter(|_| kept.last == id.0)
        };
        let made = made.ok_or(Refusal::Expired)?;
        let part = tokio::task::spawn_blocking(move || made.read_part(offset)).await;
        let part = part.map_err(|_| Refusal::Internal)?;
        part.map_err(|error| Refusal::Unavailable(format!("the copy cannot be read: {error}")))
    }

    /// Checks that the caller may back up and prune the store.
    fn may_manage_store(&self, asked: &str) -> Result<(), Refusal> {
        let admins = self.shared.authority.admin_group_name();
        self.require_right(Operation::MaintainStore, asked, &admins)
    }
}

/// Refuses a time in the future: it is probably a mistake.
fn check_is_past(before: Timestamp, now: Timestamp) -> Result<(), Refusal> {
    if before <= now {
        return Ok(());
    }
    let (before, now) = (before.to_rfc3339(), now.to_rfc3339());
    Err(Refusal::Invalid(format!(
        "{before} is in the future: now is {now}"
    )))
}
