//! Decides which processes are protected, whatever the request.
//!
//! A process chooses its own name. Its user decides which code runs in it
//! (`LD_PRELOAD`, ptrace), and a mount namespace decides which file a path names. So a
//! name protects only a process of root or of a system account that executes the host's
//! own file, and only in the host's user namespace. A display server of a person is
//! protected while it is part of an active session at a seat. An unknown fact protects.

use super::{ProcessInfo, ProcessTable, ProgramOrigin};
use crate::access::{UID_MIN, Uids};
use crate::holders::{program_names, program_protection as by_name};
use crate::job::{ProcessLineage, executable_name};
use crate::select::{Glob, names_user, user_number};
use gpukill_proto::kill::ProtectionReason;
use gpukill_proto::model::Container;
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

/// The processes that the admin protects, and the daemon's own pid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// The daemon's own pid.
    pub daemon: u32,
    /// The first uid of people; lower uids are system accounts.
    pub uid_min: u32,
    /// Full names of processes, or paths of executables. Both apply to root and system
    /// accounts that execute the host's own file; a name applies where the executable
    /// has it too and lies in a system directory.
    pub names: Vec<String>,
    /// Names or numbers of users. In a user namespace only the user of the host who made
    /// it counts: this user controls every name in it.
    pub users: Vec<String>,
    /// Names of units of the system's systemd.
    pub units: Vec<Glob>,
    /// Names or ids of containers that only root could have made.
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

/// The ancestors of the daemon and its own processes, in one process table. They are
/// found once for all processes of the table: a walk to the top from each of them would
/// take time that grows with the square of a chain of children.
#[derive(Debug, Clone, Default)]
pub struct DaemonFamily {
    daemon: u32,
    ancestors: BTreeSet<u32>,
    /// The daemon and all processes below it.
    own: BTreeSet<u32>,
}

impl DaemonFamily {
    /// Finds them in this table; `daemon` is the daemon's pid, 0 where there is none.
    #[must_use]
    pub fn new(daemon: u32, table: &ProcessTable) -> Self {
        if daemon == 0 {
            return Self::default();
        }
        let mut own = BTreeSet::new();
        let mut is_new = own.insert(daemon);
        // Most children have a higher pid than their parent: few passes find all.
        while is_new {
            is_new = false;
            for (pid, process) in table {
                is_new |= own.contains(&process.parent) && own.insert(*pid);
            }
        }
        Self {
            daemon,
            ancestors: ancestor_pids(daemon, table),
            own,
        }
    }

    /// Why a process is protected as the daemon, as an ancestor of it, or as a child of
    /// it: the sensor.
    fn protection(&self, process: &ProcessInfo) -> Option<String> {
        let pid = process.lineage.key.pid;
        if self.daemon == 0 {
            return None;
        }
        if pid == self.daemon {
            return Some("it is gpukilld".into());
        }
        if self.ancestors.contains(&pid) {
            return Some("it is an ancestor of gpukilld".into());
        }
        let is_its_own = self.own.contains(&process.parent);
        is_its_own.then(|| "it is part of gpukilld".into())
    }
}

/// Returns why the process is protected; `None` where it is not.
#[must_use]
pub fn protection_of(
    process: &ProcessInfo,
    family: &DaemonFamily,
    protection: &Protection,
) -> Option<ProtectionReason> {
    let pid = process.lineage.key.pid;
    if pid <= 1 {
        return by_name(pid, "").map(ProtectionReason::always);
    }
    if process.is_kernel_thread {
        return Some(ProtectionReason::always("it is a kernel thread"));
    }
    if let Some(why) = family.protection(process) {
        return Some(ProtectionReason::always(why));
    }
    service_protection(process, protection.uid_min)
        .or_else(|| protection.by_name(process))
        .or_else(|| protection.by_user(process))
        .or_else(|| protection.by_unit(process))
        .or_else(|| protection.by_container(process))
        .map(ProtectionReason::unless_overridden)
}

/// The pids above a process.
fn ancestor_pids(pid: u32, table: &ProcessTable) -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    let mut next = table.get(&pid).map(|process| process.parent);
    while let Some(parent) = next.filter(|parent| *parent != 0) {
        // The process table is not read atomically: a chain of parents may be a cycle.
        if !above.insert(parent) {
            break;
        }
        next = table.get(&parent).map(|process| process.parent);
    }
    above
}

/// Protection of a service for all users, by its name.
fn service_protection(process: &ProcessInfo, uid_min: u32) -> Option<String> {
    let lineage = &process.lineage;
    let why = by_name(lineage.key.pid, &lineage.name)?;
    let is_such = |name: &str| by_name(lineage.key.pid, name) == Some(why);
    let is_trusted = name_facts(process).is_trusted(&lineage.name, uid_min);
    (is_trusted != Some(false) && executable_matches_name(lineage, is_such)).then(|| why.to_owned())
}

/// The facts that decide whether the name of a process is trusted.
#[derive(Debug, Clone, Copy)]
pub struct NameFacts<'a> {
    /// The users it runs as.
    pub uids: &'a Reading<Uids>,
    /// The owner of its user namespace.
    pub namespace_owner: &'a Reading<Option<u32>>,
    /// Whether it executes a file of the host.
    pub is_host_file: Option<bool>,
    /// Whether it is part of an active session at a seat; unsupported where this was
    /// not read, because its name is not that of a display server.
    pub at_seat: &'a Reading<bool>,
}

impl NameFacts<'_> {
    /// Whether this name is trusted: the process is the system's own, or a display
    /// server of the person at a seat. `None` where that is unknown.
    #[must_use]
    pub fn is_trusted(&self, name: &str, uid_min: u32) -> Option<bool> {
        match self.is_system_process(uid_min) {
            Some(false) if program_names::is_display(name) => self.is_at_seat(),
            is_systems => is_systems,
        }
    }

    /// Whether it runs only as root or as a system account, in the host's user
    /// namespace, and executes the host's own file.
    fn is_system_process(&self, uid_min: u32) -> Option<bool> {
        let uids = self.uids.known();
        let has_system_uids = uids.map(|uids| are_system_accounts(*uids, uid_min));
        all_hold([
            has_system_uids,
            self.is_in_host_namespace(),
            self.is_host_file,
        ])
    }

    fn is_at_seat(&self) -> Option<bool> {
        let at_seat = match self.at_seat {
            Reading::Value(at_seat) | Reading::Stale(at_seat, _) => Some(*at_seat),
            Reading::Unsupported => Some(false),
            Reading::Failed(_) | Reading::Withheld => None,
        };
        all_hold([at_seat, self.is_in_host_namespace(), self.is_host_file])
    }

    fn is_in_host_namespace(&self) -> Option<bool> {
        match self.namespace_owner {
            Reading::Value(namespace_creator) | Reading::Stale(namespace_creator, _) => {
                Some(namespace_creator.is_none())
            }
            // A kernel without user namespaces has only the host's.
            Reading::Unsupported => Some(true),
            Reading::Failed(_) | Reading::Withheld => None,
        }
    }
}

fn name_facts(process: &ProcessInfo) -> NameFacts<'_> {
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

/// Whether all ids are root or system accounts. A process of a person may have the
/// rights of root and still be that person's.
#[must_use]
pub fn are_system_accounts(uids: Uids, uid_min: u32) -> bool {
    [uids.real, uids.effective, uids.saved]
        .iter()
        .all(|uid| *uid < uid_min)
}

/// Whether the daemon must read the origin of the executable and the seat, to know if
/// the name protects the process.
#[must_use]
pub fn may_be_protected_by_name(
    lineage: &ProcessLineage,
    uids: &Reading<Uids>,
    uid_min: u32,
) -> bool {
    let is_person = uids
        .known()
        .is_some_and(|uids| !are_system_accounts(*uids, uid_min));
    !is_person || has_display_server_name(&lineage.name)
}

/// Whether this is the name of a display server or compositor.
#[must_use]
pub fn has_display_server_name(name: &str) -> bool {
    program_names::is_display(name)
}

/// Three-valued conjunction: one false fact decides, even where others are unknown.
fn all_hold<const N: usize>(parts: [Option<bool>; N]) -> Option<bool> {
    match parts {
        _ if parts.contains(&Some(false)) => Some(false),
        _ if parts.contains(&None) => None,
        _ => Some(true),
    }
}

/// Whether it is or may be in the host's user namespace.
pub(super) fn may_be_in_host_namespace(process: &ProcessInfo) -> bool {
    process.namespace_owner.known().copied().flatten().is_none()
}

/// Whether the executable agrees with the name, is of the same kind (Xorg calls itself
/// X), or is unknown.
pub(super) fn executable_matches_name(
    lineage: &ProcessLineage,
    is_such: impl Fn(&str) -> bool,
) -> bool {
    let Some(path) = lineage.executable.as_deref() else {
        return true;
    };
    let program = executable_name(lineage).unwrap_or_default();
    let has_name = program_names::truncate_name(program)
        == program_names::truncate_name(&lineage.name)
        || is_such(program);
    has_name && is_system_path(path)
}

/// Whether it may execute a file of the host in a system directory. In a mount
/// namespace, which takes a user namespace of their own, a person chooses the file at
/// any path.
pub(super) fn may_run_host_file(process: &ProcessInfo) -> bool {
    let has_host_users = name_facts(process).is_in_host_namespace() != Some(false);
    let is_host_file = name_facts(process).is_host_file != Some(false);
    let path = program_path(&process.lineage);
    has_host_users && is_host_file && path.is_none_or(is_system_path)
}

/// The path of the executable, without the mark of a replaced file.
fn program_path(lineage: &ProcessLineage) -> Option<&str> {
    let path = lineage.executable.as_deref()?;
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// Whether only root writes at this path.
pub(crate) fn is_system_path(path: &str) -> bool {
    let mut parts = path.split('/');
    let directory = (parts.next() == Some("")).then(|| parts.next()).flatten();
    // A file in the root directory has no directory name.
    let directory = directory.filter(|_| parts.next().is_some());
    directory.is_some_and(|name| {
        matches!(
            name,
            "bin" | "lib" | "lib32" | "lib64" | "libx32" | "nix" | "opt" | "sbin" | "usr"
        )
    })
}

impl Protection {
    fn by_name(&self, process: &ProcessInfo) -> Option<String> {
        let lineage = &process.lineage;
        let is_protected = |entry: &&String| {
            let (name, is_there) = match (entry.rsplit_once('/'), program_path(lineage)) {
                (Some(_), Some(path)) => return path == entry.as_str(),
                (Some((_, name)), None) => (name, true),
                (None, _) => (entry.as_str(), executable_matches_name(lineage, |_| false)),
            };
            is_there
                && program_names::truncate_name(name) == program_names::truncate_name(&lineage.name)
        };
        if name_facts(process).is_system_process(self.uid_min) == Some(false) {
            return None;
        }
        let entry = self.names.iter().find(is_protected)?;
        Some(format!("the admin protects the name {entry}"))
    }

    fn by_user(&self, process: &ProcessInfo) -> Option<String> {
        let namespace_creator = process.namespace_owner.known().copied().flatten();
        let person_name = process.person_name.last_known().map(String::as_str);
        // A recheck reads no owner, but the name of the user.
        let owner = process
            .owner
            .last_known()
            .map(String::as_str)
            .or(person_name);
        let owner = owner.filter(|_| namespace_creator.is_none());
        let creator_name = person_name.filter(|_| namespace_creator.is_some());
        let is_protected = |entry: &&String| {
            names_user(entry, process.lineage.uid, owner)
                || names_user(entry, namespace_creator, creator_name)
        };
        if let Some(entry) = self.users.iter().find(is_protected) {
            return Some(format!("the admin protects processes of {entry}"));
        }
        // While the name service hangs, the owner is shown as a number.
        let has_name = owner.is_some_and(|owner| user_number(owner).is_none());
        let lacks_name = !has_name
            && process.person_name.failure().is_some()
            && self.users.iter().any(|entry| user_number(entry).is_none());
        let is_unknown = lacks_name
            || process.namespace_owner.failure().is_some()
            || process.lineage.uid.is_none() && namespace_creator.is_none();
        (is_unknown && !self.users.is_empty())
            .then(|| "its owner is not known, and the admin protects some users".into())
    }

    fn by_unit(&self, process: &ProcessInfo) -> Option<String> {
        // A person with a systemd of their own chooses the names of its units.
        let unit = process.lineage.unit.as_ref()?;
        let unit = Some(unit).filter(|unit| unit.manager.is_none())?;
        let is_protected = self.units.iter().any(|entry| entry.names_unit(&unit.name));
        is_protected.then(|| format!("the admin protects {}", unit.name))
    }

    fn by_container(&self, process: &ProcessInfo) -> Option<String> {
        if self.containers.is_empty() {
            return None;
        }
        let in_doubt =
            || Some("its container is not known, and the admin protects some containers".into());
        let container = match &process.container {
            Reading::Value(container) | Reading::Stale(container, _) => container.as_ref()?,
            Reading::Unsupported => return None,
            Reading::Failed(_) | Reading::Withheld => return in_doubt(),
        };
        // A person who makes a container without root chooses its name.
        let namespace_creator = process.namespace_owner.known().copied().flatten();
        if container.manager.is_some() || namespace_creator.is_some_and(|uid| uid != 0) {
            return None;
        }
        let entries = self.containers.iter();
        match entries
            .into_iter()
            .find(|entry| names_container(entry, container))
        {
            Some(entry) => Some(format!("the admin protects container {entry}")),
            None if container.name.failure().is_some() => in_doubt(),
            None => None,
        }
    }
}

/// Length of the container ids that runtimes print.
const SHORT_ID: usize = 12;

fn names_container(entry: &str, container: &Container) -> bool {
    container
        .name
        .last_known()
        .is_some_and(|name| name == entry)
        || container.id.id == entry
        || (entry.len() >= SHORT_ID && container.id.id.starts_with(entry))
}
