//! Calls about the whole store: prune and backup.

use super::daemon::{Daemon, question};
use super::timeout::RequestTimeout;
use crate::exit::Error;
use gpukill_proto::audit::{Backup, CopyId, PruneReport};
use gpukill_proto::units::Timestamp;

/// Whether a change is made or only planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Report what the change would do.
    DryRun,
    /// Make the change.
    Apply,
}

impl Daemon {
    /// Deletes records older than `before`, or reports what would be deleted.
    pub(crate) fn prune(
        &self,
        before: Timestamp,
        doing: Mode,
        patience: RequestTimeout,
    ) -> Result<PruneReport, Error> {
        let is_dry_run = doing == Mode::DryRun;
        question!(self, patience, Prune { before, is_dry_run })
    }

    /// Lets the daemon make a copy of the store.
    pub(crate) fn backup(&self, patience: RequestTimeout) -> Result<Backup, Error> {
        question!(self, patience, Backup {})
    }

    /// A part of the copy.
    pub(crate) fn backup_part(
        &self,
        copy: CopyId,
        offset: u64,
        patience: RequestTimeout,
    ) -> Result<Vec<u8>, Error> {
        question!(self, patience, PartOfBackup { copy, offset })
    }
}
