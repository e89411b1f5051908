//! What nobody ends, whoever asks and whatever is said.
//!
//! A process can call itself what it likes. Its user chooses what code runs in it
//! (`LD_PRELOAD`, ptrace), and a mount namespace decides what file a path is. So a
//! name protects only a process of root or of a system account that executes the
//! host's own file, and only in the box's own user namespace. A display server of a
//! person is protected while it is part of an active session at a seat. What is not
//! known of these protects.

use super::{Candidate, Crowd, ProgramOrigin};
use crate::access::{UID_MIN, Uids};
use crate::holders::{names, protection as by_name};
use crate::job::{Kin, program};
use crate::select::{Glob, is_user};
use gpukill_proto::kill::Protected;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Container;
use std::collections::BTreeSet;

/// What the admin protects besides, and which process is the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// The daemon's own pid.
    pub daemon: u32,
    /// The first uid that is a person's: lower ones are system accounts.
    pub uid_min: u32,
    /// Names of processes, whole, or paths of executables. Either counts for root
    /// and system accounts that execute the host's own file; a name where the
    /// executable is called so too and lies in a directory of the system's.
    pub names: Vec<String>,
    /// Names or numbers of users. In a rootless container only the number of who
    /// made it counts: what such a container says of its owner is theirs to say.
    pub users: Vec<String>,
    /// Names of systemd units, of the system's own systemd.
    pub units: Vec<Glob>,
    /// Names or ids of containers, of those that only root could have made.
    pub containers: Vec<String>,
}

impl Default for Protection {
    fn default() -> Self {
        Self {
            daemon: 0,
            uid_min: UID_MIN,
            names: Vec::new(),
            users: Vec::new(),
            units: Vec::new(),
            containers: Vec::new(),
        }
    }
}

/// Why nobody ends this process; `None` where somebody may.
#[must_use]
pub fn protection(
    process: &Candidate,
    crowd: &Crowd,
    protection: &Protection,
) -> Option<Protected> {
    let pid = process.kin.key.pid;
    if pid <= 1 {
        return by_name(pid, "").map(Protected::always);
    }
    if process.is_kernel_thread {
        return Some(Protected::always("it is a thread of the kernel"));
    }
    if let Some(why) = of_the_daemon(process, crowd, protection.daemon) {
        return Some(Protected::always(why));
    }
    of_everybody(process, protection.uid_min)
        .or_else(|| protection.by_name(process))
        .or_else(|| protection.by_user(process))
        .or_else(|| protection.by_unit(process))
        .or_else(|| protection.by_container(process))
        .map(Protected::unless_overridden)
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
fn of_everybody(process: &Candidate, uid_min: u32) -> Option<String> {
    let kin = &process.kin;
    let why = by_name(kin.key.pid, &kin.name)?;
    let is_such = |name: &str| by_name(kin.key.pid, name) == Some(why);
    let is_trusted = name_facts(process).is_trusted(&kin.name, uid_min);
    (is_trusted != Some(false) && agrees(kin, is_such)).then(|| why.to_owned())
}

/// What decides whether the name of a process is to be believed.
#[derive(Debug, Clone, Copy)]
pub struct NameFacts<'a> {
    /// As whom it runs.
    pub uids: &'a Reading<Uids>,
    /// Who made its user namespace.
    pub namespace_owner: &'a Reading<Option<u32>>,
    /// Whether it executes a file of the host.
    pub is_host_file: Option<bool>,
    /// Whether it is part of an active session at a seat; unsupported where nobody
    /// looked, since its name is no display server's.
    pub at_seat: &'a Reading<bool>,
}

impl NameFacts<'_> {
    /// Whether this name is to be believed: the process is the system's own, or a
    /// display server of the person at a seat. `None` where that is not known.
    #[must_use]
    pub fn is_trusted(&self, name: &str, uid_min: u32) -> Option<bool> {
        match self.is_systems(uid_min) {
            Some(false) if names::is_display(name) => self.is_at_seat(),
            is_systems => is_systems,
        }
    }

    /// Whether it runs as root or as a system account alone, in the box's own user
    /// namespace, and executes the host's own file.
    fn is_systems(&self, uid_min: u32) -> Option<bool> {
        let uids = self.uids.known();
        let has_system_uids = uids.map(|uids| are_system_accounts(*uids, uid_min));
        all([has_system_uids, self.has_host_users(), self.is_host_file])
    }

    fn is_at_seat(&self) -> Option<bool> {
        let at_seat = match self.at_seat {
            Reading::Value(at_seat) | Reading::Stale(at_seat, _) => Some(*at_seat),
            Reading::Unsupported => Some(false),
            Reading::Failed(_) | Reading::Withheld => None,
        };
        all([at_seat, self.has_host_users(), self.is_host_file])
    }

    fn has_host_users(&self) -> Option<bool> {
        match self.namespace_owner {
            Reading::Value(maker) | Reading::Stale(maker, _) => Some(maker.is_none()),
            // A kernel without user namespaces has no others.
            Reading::Unsupported => Some(true),
            Reading::Failed(_) | Reading::Withheld => None,
        }
    }
}

fn name_facts(process: &Candidate) -> NameFacts<'_> {
    NameFacts {
        uids: &process.uids,
        namespace_owner: &process.namespace_owner,
        is_host_file: process.program.known().map(|origin| match origin {
            ProgramOrigin::Host | ProgramOrigin::Replaced => true,
            ProgramOrigin::Elsewhere => false,
        }),
        at_seat: &process.at_seat,
    }
}

/// Whether these are all root or system accounts. A person's process may have the
/// rights of root and still be the person's.
#[must_use]
pub fn are_system_accounts(uids: Uids, uid_min: u32) -> bool {
    [uids.real, uids.effective, uids.saved]
        .iter()
        .all(|uid| *uid < uid_min)
}

/// Whether the daemon has to read whose file this process executes, and whether it is
/// at a seat, to know if its name protects it.
#[must_use]
pub fn may_be_protected_by_name(kin: &Kin, uids: &Reading<Uids>, uid_min: u32) -> bool {
    let is_person = uids
        .known()
        .is_some_and(|uids| !are_system_accounts(*uids, uid_min));
    !is_person || is_called_like_a_display(&kin.name)
}

/// Whether it is called like a display server or compositor.
#[must_use]
pub fn is_called_like_a_display(name: &str) -> bool {
    names::is_display(name)
}

/// Whether all of these hold; one that does not is enough, whatever else is unknown.
fn all<const N: usize>(parts: [Option<bool>; N]) -> Option<bool> {
    match parts {
        _ if parts.contains(&Some(false)) => Some(false),
        _ if parts.contains(&None) => None,
        _ => Some(true),
    }
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

/// Whether it may execute a file of the host, in a directory of the system's. A person
/// chooses files at any path in a mount namespace, which takes a user namespace of theirs.
pub(super) fn may_be_hosts_file(process: &Candidate) -> bool {
    let has_host_users = name_facts(process).has_host_users() != Some(false);
    let is_host_file = name_facts(process).is_host_file != Some(false);
    let path = program_path(&process.kin);
    has_host_users && is_host_file && path.is_none_or(is_the_systems)
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
        if name_facts(process).is_systems(self.uid_min) == Some(false) {
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
        let unit = Some(unit).filter(|unit| unit.manager.is_none())?;
        let is_protected = self.units.iter().any(|entry| entry.names_unit(&unit.name));
        is_protected.then(|| format!("the admin protects {}", unit.name))
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
