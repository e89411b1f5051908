//! The questions about the store as a whole: made smaller, copied.

use super::daemon::{Daemon, question};
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
    pub(crate) fn prune(
        &self,
        before: Timestamp,
        doing: Doing,
        patience: Patience,
    ) -> Result<PruneReport, Failure> {
        let is_dry_run = doing == Doing::Saying;
        question!(self, patience, Prune { before, is_dry_run })
    }

    /// Has a copy of the store made.
    pub(crate) fn backup(&self, patience: Patience) -> Result<Backup, Failure> {
        question!(self, patience, Backup {})
    }

    /// A part of it.
    pub(crate) fn part_of_backup(
        &self,
        copy: CopyId,
        offset: u64,
        patience: Patience,
    ) -> Result<Vec<u8>, Failure> {
        question!(self, patience, PartOfBackup { copy, offset })
    }
}
