//! Who may what, by the settings and groups as they are now.

use crate::config::Config;
use crate::host::users::Users;
use gpukill_policy::access::{Caller, LimitGroup, Reach, Roles};
use gpukill_policy::kill::protected::Protection;
use gpukill_policy::select::Glob;
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// The settings and the name service, for whoever has to decide. Clones share it.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) users: Users,
    /// The first uid that is a person's.
    uid_min: u32,
    /// Whether the guard is among those who may end anybody's processes.
    is_the_guards: bool,
}

impl Authority {
    /// By these settings, for people.
    pub(crate) const fn new(
        config: watch::Receiver<Arc<Config>>,
        users: Users,
        uid_min: u32,
    ) -> Self {
        Self {
            config,
            users,
            uid_min,
            is_the_guards: false,
        }
    }

    /// The same for what the guard does: it ends anybody's processes, and what is
    /// protected no more than anybody.
    pub(crate) fn of_the_guard(&self) -> Self {
        Self {
            is_the_guards: true,
            ..self.clone()
        }
    }

    /// Who asks where the guard does: the daemon's own user, who is nobody special to
    /// the socket, and with whom no client shares a limit.
    pub(crate) fn the_guard() -> Caller {
        let uid = rustix::process::getuid().as_raw();
        Caller {
            uid,
            groups: BTreeSet::new(),
            contained: false,
            limit_group: LimitGroup::Guard,
        }
    }

    /// Who may what.
    pub(crate) fn roles(&self) -> Roles {
        let config = self.config.borrow().clone();
        let gid = |name: &str| self.users.group(name).map(|group| group.gid);
        Roles {
            operator_group: gid(&config.access.operator_group),
            admin_group: gid(&config.access.admin_group),
            owner: (config.personal || self.is_the_guards)
                .then(|| rustix::process::getuid().as_raw()),
            hide_other_users: config.access.hide_other_users,
            reach: match config.personal {
                true => reach(),
                false => Reach::Everybody,
            },
        }
    }

    /// What the group is called whose members may end anybody's processes.
    pub(crate) fn operators(&self) -> String {
        self.config.borrow().access.operator_group.clone()
    }

    /// What the group is called whose members may change the rules and keep the store.
    pub(crate) fn admins(&self) -> String {
        self.config.borrow().access.admin_group.clone()
    }

    /// What nobody ends.
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

/// Whose processes this one may signal. The service has the capability by its unit; where
/// somebody took it away, each signal that the kernel refuses is told.
fn reach() -> Reach {
    let sets = rustix::thread::capabilities(None);
    match sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::KILL)) {
        true => Reach::Everybody,
        false => Reach::Only(rustix::process::getuid().as_raw()),
    }
}

/// Settings that a test changes while they are read.
#[cfg(test)]
pub(crate) struct Settings(watch::Sender<Arc<Config>>);

#[cfg(test)]
impl Settings {
    /// The default ones, and an authority that reads them.
    pub(crate) fn read_with(users: Users) -> (Self, Authority) {
        let (settings, config) = watch::channel(Arc::default());
        let uid_min = gpukill_policy::access::UID_MIN;
        (Self(settings), Authority::new(config, users, uid_min))
    }

    /// Nobody ends what these run, from now on.
    pub(crate) fn protect_users(&self, users: Vec<String>) {
        let mut config = Config::default();
        config.protect.users = users;
        self.0.send_replace(Arc::new(config));
    }
}
