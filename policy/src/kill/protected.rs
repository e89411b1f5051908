//! What nobody ends, whoever asks and whatever is said.
//!
//! A process can call itself what it likes, and in a user namespace of its own
//! its executable can seem to lie anywhere. So a name protects only where the
//! executable agrees with it and lies where root alone writes, and only in the
//! box's own user namespace. What is not known of these protects.

use super::{Candidate, Crowd};
use crate::holders::{names, protection as by_name};
use crate::job::{Kin, program};
use crate::select::is_user;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Container;
use std::collections::BTreeSet;

/// What the admin protects besides, and which process is the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Protection {
    /// The daemon's own pid.
    pub daemon: u32,
    /// Names of processes, whole, or paths of executables. A name counts where
    /// the executable is called so too and lies in a directory of the system's.
    pub names: Vec<String>,
    /// Names or numbers of users. In a rootless container only the number of who
    /// made it counts: what such a container says of its owner is theirs to say.
    pub users: Vec<String>,
    /// Names of systemd units, of the system's own systemd.
    pub units: Vec<String>,
    /// Names or ids of containers, of those that only root could have made.
    pub containers: Vec<String>,
}

/// Why nobody ends this process; `None` where somebody may.
#[must_use]
pub fn protection(process: &Candidate, crowd: &Crowd, protection: &Protection) -> Option<String> {
    let pid = process.kin.key.pid;
    if pid <= 1 {
        return by_name(pid, "").map(str::to_owned);
    }
    if process.is_kernel_thread {
        return Some("it is a thread of the kernel".into());
    }
    of_the_daemon(process, crowd, protection.daemon)
        .or_else(|| of_everybody(process))
        .or_else(|| protection.by_name(process))
        .or_else(|| protection.by_user(process))
        .or_else(|| protection.by_unit(process))
        .or_else(|| protection.by_container(process))
}

/// The daemon, what it runs below, and what it started: its sensor.
fn of_the_daemon(process: &Candidate, crowd: &Crowd, daemon: u32) -> Option<String> {
    let pid = process.kin.key.pid;
    if daemon == 0 {
        return None;
    }
    if pid == daemon {
        return Some("it is gpukilld".into());
    }
    if line(daemon, crowd).contains(&pid) {
        return Some("gpukilld runs below it".into());
    }
    let is_its_own = process.parent == daemon || line(process.parent, crowd).contains(&daemon);
    is_its_own.then(|| "it is a part of gpukilld".into())
}

/// The pids above this one.
fn line(pid: u32, crowd: &Crowd) -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    let mut next = crowd.get(&pid).map(|process| process.parent);
    while let Some(parent) = next.filter(|parent| *parent != 0) {
        // A crowd is not read all at once: a line of it may be a circle.
        if !above.insert(parent) {
            break;
        }
        next = crowd.get(&parent).map(|process| process.parent);
    }
    above
}

/// What serves everybody, by its name.
fn of_everybody(process: &Candidate) -> Option<String> {
    let kin = &process.kin;
    let why = by_name(kin.key.pid, &kin.name)?;
    let is_such = |name: &str| by_name(kin.key.pid, name) == Some(why);
    (is_of_the_box(process) && agrees(kin, is_such)).then(|| why.to_owned())
}

/// Whether it has the box's own user namespace, or might have.
pub(super) fn is_of_the_box(process: &Candidate) -> bool {
    process.namespace_owner.known().copied().flatten().is_none()
}

/// Whether its executable agrees with its name, or is of the same kind, as Xorg is
/// that calls itself X; or is not known.
pub(super) fn agrees(kin: &Kin, is_such: impl Fn(&str) -> bool) -> bool {
    let Some(path) = kin.executable.as_deref() else {
        return true;
    };
    let program = program(kin).unwrap_or_default();
    let is_called_so = names::cut(program) == names::cut(&kin.name) || is_such(program);
    is_called_so && is_the_systems(path)
}

/// What it executes, whether or not that was replaced since.
fn program_path(kin: &Kin) -> Option<&str> {
    let path = kin.executable.as_deref()?;
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// Whether this path lies where root alone writes.
pub(crate) fn is_the_systems(path: &str) -> bool {
    let mut parts = path.split('/');
    let directory = (parts.next() == Some("")).then(|| parts.next()).flatten();
    // A file of the root directory is in none.
    let directory = directory.filter(|_| parts.next().is_some());
    directory.is_some_and(|name| {
        matches!(
            name,
            "bin" | "lib" | "lib32" | "lib64" | "libx32" | "nix" | "opt" | "sbin" | "usr"
        )
    })
}

impl Protection {
    fn by_name(&self, process: &Candidate) -> Option<String> {
        let kin = &process.kin;
        let is_protected = |entry: &&String| {
            let (name, is_there) = match (entry.rsplit_once('/'), program_path(kin)) {
                (Some(_), Some(path)) => return path == entry.as_str(),
                (Some((_, name)), None) => (name, true),
                (None, _) => (entry.as_str(), agrees(kin, |_| false)),
            };
            is_there && names::cut(name) == names::cut(&kin.name)
        };
        if !is_of_the_box(process) {
            return None;
        }
        let entry = self.names.iter().find(is_protected)?;
        Some(format!("the admin protects what is called {entry}"))
    }

    fn by_user(&self, process: &Candidate) -> Option<String> {
        let maker = process.namespace_owner.known().copied().flatten();
        let owner = process.owner.last_known().map(String::as_str);
        let owner = owner.filter(|_| maker.is_none());
        let is_protected =
            |entry: &&String| is_user(entry, process.kin.uid, owner) || is_user(entry, maker, None);
        if let Some(entry) = self.users.iter().find(is_protected) {
            return Some(format!("the admin protects what {entry} runs"));
        }
        let is_unknown = process.kin.uid.is_none() && maker.is_none();
        (is_unknown && !self.users.is_empty())
            .then(|| "whose it is is not known, and the admin protects some users".into())
    }

    fn by_unit(&self, process: &Candidate) -> Option<String> {
        // Whoever has a systemd of their own calls its units what they like.
        let unit = process.kin.unit.as_ref()?;
        let is_protected = |entry: &&String| unit.manager.is_none() && unit.name == **entry;
        let entry = self.units.iter().find(is_protected)?;
        Some(format!("the admin protects {entry}"))
    }

    fn by_container(&self, process: &Candidate) -> Option<String> {
        if self.containers.is_empty() {
            return None;
        }
        let in_doubt = || Some("its container is not known, and the admin protects some".into());
        let container = match &process.container {
            Reading::Value(container) | Reading::Stale(container, _) => container.as_ref()?,
            Reading::Unsupported => return None,
            Reading::Failed(_) | Reading::Withheld => return in_doubt(),
        };
        // Who makes a container without root calls it what they like.
        let maker = process.namespace_owner.known().copied().flatten();
        if container.manager.is_some() || maker.is_some_and(|uid| uid != 0) {
            return None;
        }
        let entries = self.containers.iter();
        match entries.into_iter().find(|entry| names_it(entry, container)) {
            Some(entry) => Some(format!("the admin protects container {entry}")),
            None if container.name.failure().is_some() => in_doubt(),
            None => None,
        }
    }
}

/// How many digits of a container's id the runtimes print.
const SHORT_ID: usize = 12;

fn names_it(entry: &str, container: &Container) -> bool {
    container
        .name
        .last_known()
        .is_some_and(|name| name == entry)
        || container.id.id == entry
        || (entry.len() >= SHORT_ID && container.id.id.starts_with(entry))
}
