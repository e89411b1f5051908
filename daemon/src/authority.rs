//! Who may what, by the settings and groups as they are now.

use crate::config::Config;
use crate::host::users::Users;
use gpukill_policy::access::Roles;
use gpukill_policy::kill::protected::Protection;
use std::sync::Arc;
use tokio::sync::watch;

/// The settings and the name service, for whoever has to decide. Clones share it.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) users: Users,
}

impl Authority {
    /// Who may what.
    pub(crate) fn roles(&self) -> Roles {
        let config = self.config.borrow().clone();
        let gid = |name: &str| self.users.group(name).map(|group| group.gid);
        Roles {
            operator_group: gid(&config.access.operator_group),
            admin_group: gid(&config.access.admin_group),
            owner: config.personal.then(|| rustix::process::getuid().as_raw()),
            hide_other_users: config.access.hide_other_users,
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

/// Settings that a test changes while they are read.
#[cfg(test)]
pub(crate) struct Settings(watch::Sender<Arc<Config>>);

#[cfg(test)]
impl Settings {
    /// The default ones, and an authority that reads them.
    pub(crate) fn read_with(users: Users) -> (Self, Authority) {
        let (settings, config) = watch::channel(Arc::default());
        (Self(settings), Authority { config, users })
    }

    /// Nobody ends what these run, from now on.
    pub(crate) fn protect_users(&self, users: Vec<String>) {
        let mut config = Config::default();
        config.protect.users = users;
        self.0.send_replace(Arc::new(config));
    }
}
