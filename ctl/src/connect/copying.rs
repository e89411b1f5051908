//! The questions about the store as a whole: made smaller, copied.

use super::daemon::Daemon;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::audit::{Backup, CopyId, PruneReport};
use gpukill_proto::units::Timestamp;

/// Whether something is done, or only said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// What it would do.
    Saying,
    /// It is done.
    Doing,
}

impl Daemon {
    /// Deletes what is older, or says what that would be.
    pub(crate) async fn prune(
        &self,
        before: Timestamp,
        doing: Doing,
        patience: Patience,
    ) -> Result<PruneReport, Failure> {
        let is_dry_run = doing == Doing::Saying;
        self.ask(patience, async |context| {
            self.client.prune(context, before, is_dry_run).await
        })
        .await
    }

    /// Has a copy of the store made.
    pub(crate) async fn backup(&self, patience: Patience) -> Result<Backup, Failure> {
        self.ask(patience, async |context| self.client.backup(context).await)
            .await
    }

    /// A part of it.
    pub(crate) async fn part_of_backup(
        &self,
        copy: CopyId,
        offset: u64,
        patience: Patience,
    ) -> Result<Vec<u8>, Failure> {
        self.ask(patience, async |context| {
            self.client.part_of_backup(context, copy, offset).await
        })
        .await
    }
}
