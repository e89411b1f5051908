//! The rights of callers by the current settings and groups.

use crate::config::Config;
use crate::host::users::Users;
use gpukill_policy::access::{Caller, LimitGroup, Roles, SignalReach};
use gpukill_policy::kill::protection::Protection;
use gpukill_policy::select::Glob;
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// The settings and the name service for access decisions. Clones share it.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) users: Users,
    /// The lowest uid of a person.
    uid_min: u32,
    /// Whether the guard may end any user's processes.
    acts_for_guard: bool,
}

impl Authority {
    pub(crate) const fn new(
        config: watch::Receiver<Arc<Config>>,
        users: Users,
        uid_min: u32,
    ) -> Self {
        Self {
            config,
            users,
            uid_min,
            acts_for_guard: false,
        }
    }

    /// The authority for the guard: it may end any user's processes, but like any other caller no
    /// protected ones.
    pub(crate) fn for_guard(&self) -> Self {
        Self {
            acts_for_guard: true,
            ..self.clone()
        }
    }

    /// The guard as a caller: the daemon's own user, which has no special rights on the socket, in
    /// a limit group that no client shares.
    pub(crate) fn guard_caller() -> Caller {
        let uid = rustix::process::getuid().as_raw();
        Caller {
            uid,
            groups: BTreeSet::new(),
            contained: false,
            limit_group: LimitGroup::Guard,
        }
    }

    /// The rights by group.
    pub(crate) fn roles(&self) -> Roles {
        let config = self.config.borrow().clone();
        let gid = |name: &str| self.users.group(name).map(|group| group.gid);
        Roles {
            operator_group: gid(&config.access.operator_group),
            admin_group: gid(&config.access.admin_group),
            owner: (config.personal || self.acts_for_guard)
                .then(|| rustix::process::getuid().as_raw()),
            hide_other_users: config.access.hide_other_users,
            reach: match config.personal {
                true => signal_reach(),
                false => SignalReach::AllUsers,
            },
        }
    }

    /// The name of the group of operators: its members may end any user's processes.
    pub(crate) fn operator_group_name(&self) -> String {
        self.config.borrow().access.operator_group.clone()
    }

    /// The name of the group of admins: its members may change the rules and manage the store.
    pub(crate) fn admin_group_name(&self) -> String {
        self.config.borrow().access.admin_group.clone()
    }

    /// The protected processes.
    pub(crate) fn protection(&self) -> Protection {
        let protect = self.config.borrow().protect.clone();
        Protection {
            daemon: std::process::id(),
            uid_min: self.uid_min,
            names: protect.names,
            users: protect.users,
            units: protect
                .units
                .iter()
                .filter_map(|it| Glob::parse(it))
                .collect(),
            containers: protect.containers,
        }
    }
}

/// The users that own the processes this daemon may signal. Its unit grants the service the
/// capability; where an admin removed it, each refused signal is reported.
fn signal_reach() -> SignalReach {
    let sets = rustix::thread::capabilities(None);
    match sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::KILL)) {
        true => SignalReach::AllUsers,
        false => SignalReach::OneUser(rustix::process::getuid().as_raw()),
    }
}

/// Settings that a test can change while they are in use.
#[cfg(test)]
pub(crate) struct TestSettings(watch::Sender<Arc<Config>>);

#[cfg(test)]
impl TestSettings {
    /// The default settings, and an authority that reads them.
    pub(crate) fn new_with_users(users: Users) -> (Self, Authority) {
        let (settings, config) = watch::channel(Arc::default());
        let uid_min = gpukill_policy::access::UID_MIN;
        (Self(settings), Authority::new(config, users, uid_min))
    }

    /// Protects the processes of these users from now on.
    pub(crate) fn protect_users(&self, users: Vec<String>) {
        let mut config = Config::default();
        config.protect.users = users;
        self.0.send_replace(Arc::new(config));
    }
}
