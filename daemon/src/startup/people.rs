//! The owners of the processes that hold clients of a card, and which of these live, as the
//! host knows it.

use crate::backend::drm::clients::{Account, People};
use crate::guard;
use crate::host::person::account;
use crate::host::users::Users;
use crate::procfs::living::Living;
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;
use std::path::Path;

/// The people of this host.
pub(super) struct HostPeople(pub(super) Users);

impl People for HostPeople {
    fn account(&self, directory: &Path) -> Option<Account> {
        account(directory).map(|(user, slice)| Account { user, slice })
    }

    fn person(&self, account: Account) -> Option<u32> {
        let user = Reading::Value(account.user);
        let behind = self.0.behind(&user, &Reading::Value(None), account.slice);
        let behind = behind.known().copied()?;
        Some(behind.unwrap_or(account.user))
    }
}

impl guard::Living for Living {
    fn has(&self, pid: u32, start_ticks: u64) -> bool {
        self.has(pid, start_ticks)
    }

    fn all(&self) -> BTreeSet<(u32, u64)> {
        self.all()
    }
}
