//! Who may what, by the settings and groups as they are now.

use crate::config::Config;
use crate::host::users::Users;
use gpukill_policy::access::{Caller, Reach, Roles};
use gpukill_policy::kill::protected::Protection;
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// The settings and the name service, for whoever has to decide. Clones share it.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) users: Users,
    /// Whether the guard is among those who may end anybody's processes.
    is_the_guards: bool,
}

impl Authority {
    /// By these settings, for people.
    pub(crate) const fn new(config: watch::Receiver<Arc<Config>>, users: Users) -> Self {
        Self {
            config,
            users,
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
    /// the socket.
    pub(crate) fn the_guard() -> Caller {
        Caller {
            uid: rustix::process::getuid().as_raw(),
            groups: BTreeSet::new(),
            contained: false,
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
            names: protect.names,
            users: protect.users,
            units: protect.units,
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
        (Self(settings), Authority::new(config, users))
    }

    /// Nobody ends what these run, from now on.
    pub(crate) fn protect_users(&self, users: Vec<String>) {
        let mut config = Config::default();
        config.protect.users = users;
        self.0.send_replace(Arc::new(config));
    }
}
