//! The owners of processes that hold clients of a card, and which processes are alive, as the host
//! knows them.

use crate::backend::drm::clients::{PersonLookup, ProcessAccount};
use crate::guard;
use crate::host::user_and_slice;
use crate::host::users::Users;
use crate::procfs::alive::LiveProcesses;
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;
use std::path::Path;

/// The people of this host.
pub(super) struct HostPersonLookup(pub(super) Users);

impl PersonLookup for HostPersonLookup {
    fn account(&self, directory: &Path) -> Option<ProcessAccount> {
        user_and_slice(directory).map(|(user, slice)| ProcessAccount { user, slice })
    }

    fn person(&self, account: ProcessAccount) -> Option<u32> {
        let user = Reading::Value(account.user);
        let behind = self
            .0
            .person_behind(&user, &Reading::Value(None), account.slice);
        let behind = behind.known().copied()?;
        Some(behind.unwrap_or(account.user))
    }
}

impl guard::ProcessLiveness for LiveProcesses {
    fn is_alive(&self, pid: u32, start_ticks: u64) -> bool {
        self.is_alive(pid, start_ticks)
    }

    fn live_processes(&self) -> BTreeSet<(u32, u64)> {
        self.all()
    }
}
