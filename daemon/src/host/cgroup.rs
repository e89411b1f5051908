//! Parses `/proc/PID/cgroup`: the container, systemd unit, session and scheduler job of a process.
//!
//! A user who may create a cgroup chooses its name. A name is therefore believed only where only
//! root could have created it: a scheduler job and a user's own systemd at their places below the
//! root, a system unit directly below slices, and a container outside every other container, unit
//! and job, in a directory that no other user can write. Cgroups below a user's own systemd belong
//! to that user, who may choose any name; [`ContainerManager`] reports that.

mod container;
mod scheduler;

use container::find_container;
pub(super) use container::{is_hash, is_name};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{ContainerId, SchedulerJob, Unit};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use scheduler::scheduler_job;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupLocation {
    pub(super) container: Reading<Option<CgroupContainer>>,
    pub(super) unit: Reading<Option<Unit>>,
    pub(super) session: Reading<Option<String>>,
    pub(super) scheduler: Reading<Option<SchedulerJob>>,
    /// The user of its user slice.
    pub(super) slice: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CgroupContainer {
    pub(super) id: ContainerId,
    /// The uid of its pod, with dashes.
    pub(super) pod: Option<String>,
    pub(super) manager: ContainerManager,
}

/// The owner of the files that describe a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ContainerManager {
    /// The system: only root could create this cgroup.
    System,
    /// This user: the user's own systemd is above the cgroup.
    User(u32),
}

impl ContainerManager {
    /// The user; `None` for the system.
    pub(super) const fn uid(self) -> Option<u32> {
        match self {
            Self::System => None,
            Self::User(uid) => Some(uid),
        }
    }
}

/// How much of the cgroup tree the daemon sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupView {
    /// All of it: the daemon is in the initial cgroup namespace.
    Whole,
    /// The part below its own namespace's root, to which paths are relative.
    Part,
}

impl CgroupLocation {
    pub(super) fn unknown(why: &Reading<()>) -> Self {
        Self {
            container: why.as_unknown(),
            unit: why.as_unknown(),
            session: why.as_unknown(),
            scheduler: why.as_unknown(),
            slice: None,
        }
    }

    /// A location for a path that is longer than the kernel reports (`PATH_MAX`, in
    /// `proc_cgroup_show` of `kernel/cgroup/cgroup.c`). Schedulers, container managers and systemd
    /// use short paths: only a user creates such a long one, below a cgroup that was delegated to
    /// them, and must not escape the rules by it. The process counts as outside of any container
    /// and unit, and is ended with its own process tree only.
    pub(super) const fn too_deep() -> Self {
        Self {
            container: Reading::Value(None),
            unit: Reading::Value(None),
            session: Reading::Value(None),
            scheduler: Reading::Value(None),
            slice: None,
        }
    }

    /// Parses the text of `/proc/PID/cgroup`. `mounts` is where the host mounts its cgroup
    /// hierarchies, if that is visible.
    pub(super) fn parse(text: &str, view: CgroupView, mounts: Option<&Path>) -> Self {
        // Version 1 has one line per controller, version 2 one line in all, a hybrid both.
        let mut lines: Vec<CgroupLine<'_>> = text.lines().filter_map(CgroupLine::parse).collect();
        if lines.is_empty() && !text.is_empty() {
            return Self::unknown(&Reading::Failed("unreadable cgroup".into()));
        }
        lines.sort_indirect_by_key(|line| line.rank);
        let is_visible =
            |line: &CgroupLine<'_>| view == CgroupView::Whole && !line.path.starts_with("/..");
        let facts: Vec<PathFacts> = lines
            .iter()
            .map(|line| PathFacts::parse(line, mounts.filter(|_| is_visible(line))))
            .collect();
        let silent = facts.iter().all(PathFacts::is_empty);
        let unclear = !lines.iter().all(is_visible);
        if silent && unclear {
            let why = Reading::Failed("its cgroup is not visible to gpukilld".into());
            return Self {
                slice: user_slice(text),
                ..Self::unknown(&why)
            };
        }
        Self {
            container: first_found(&facts, |facts| facts.container.as_ref()),
            unit: first_found(&facts, |facts| facts.unit.as_ref()),
            session: first_found(&facts, |facts| facts.session.as_ref()),
            scheduler: first_found(&facts, |facts| facts.scheduler.as_ref()),
            slice: user_slice(text),
        }
    }
}

fn first_found<T: Clone>(
    facts: &[PathFacts],
    pick: impl Fn(&PathFacts) -> Option<&T>,
) -> Reading<Option<T>> {
    Reading::Value(facts.iter().find_map(pick).cloned())
}

/// One line: a hierarchy and a path in it.
struct CgroupLine<'a> {
    /// Lower ranks carry more information.
    rank: u8,
    controllers: &'a str,
    path: &'a str,
}

impl<'a> CgroupLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        // The kernel's suffix when the cgroup of a zombie has been removed.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        // Container runtimes and schedulers use all hierarchies with limits, and memory most.
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        let rank = match controllers {
            _ if has("memory") => 0,
            _ if has("devices") => 1,
            _ if has("pids") => 2,
            "name=systemd" => 4,
            "" => 5,
            _ => 3,
        };
        path.starts_with('/').then_some(Self {
            rank,
            controllers,
            path,
        })
    }

    /// Whether root alone can create cgroups in this directory of its hierarchy; `None` if that is
    /// unknown. A service of an unprivileged user may have a directory that belongs to that user
    /// (`Delegate=` of systemd), and an admin may have given one to a user.
    fn belongs_to_root(&self, mounts: &Path, directory: &[&str]) -> Option<bool> {
        let is_roots = |directory: &Path| {
            let metadata = std::fs::metadata(directory).ok()?;
            Some(metadata.uid() == 0 && metadata.mode() & 0o022 == 0)
        };
        // In a user namespace the owner may be shown as another user.
        is_roots(mounts).filter(|is_roots| *is_roots)?;
        let directory = directory.join("/");
        let is_roots_in = |hierarchy: &str| is_roots(&mounts.join(hierarchy).join(&directory));
        match self.controllers {
            // Version 2 has a directory of its own where version 1 is mounted beside it.
            "" => is_roots_in("").or_else(|| is_roots_in("unified")),
            named => is_roots_in(named.strip_prefix("name=").unwrap_or(named)),
        }
    }
}

#[derive(Default)]
struct PathFacts {
    container: Option<CgroupContainer>,
    unit: Option<Unit>,
    session: Option<String>,
    scheduler: Option<SchedulerJob>,
}

impl PathFacts {
    fn parse(line: &CgroupLine<'_>, mounts: Option<&Path>) -> Self {
        let parts = line.path.split('/').filter(|part| !part.is_empty());
        // The path up to the root of the daemon's own namespace.
        let parts: Vec<&str> = parts.skip_while(|part| *part == "..").collect();
        let scheduler = scheduler_job(&parts);
        // Some schedulers let a job divide its cgroup.
        let is_roots = |directory: &[&str]| line.belongs_to_root(mounts?, directory);
        let found = find_container(&parts, &is_roots).filter(|_| scheduler.is_none());
        // Names below a container belong to that container.
        let with_container = found.as_ref().and_then(|(at, _)| parts.get(..=*at));
        let unit = find_unit(with_container.unwrap_or(&parts));
        let session = unit.as_ref().and_then(session_id);
        Self {
            container: found.map(|(_, container)| container),
            unit,
            session,
            scheduler,
        }
    }

    fn is_empty(&self) -> bool {
        self.container.is_none() && self.unit.is_none() && self.scheduler.is_none()
    }
}

/// The user of the user slice that a process is in, from the text of its `/proc/PID/cgroup`. Only
/// the system's systemd creates `/user.slice/user-UID.slice`.
pub(super) fn user_slice(text: &str) -> Option<u32> {
    text.lines().filter_map(CgroupLine::parse).find_map(|line| {
        let mut parts = line.path.split('/').skip(1);
        let is_user_slice = parts.next() == Some("user.slice");
        let slice = parts.next().filter(|_| is_user_slice)?;
        user_slice_uid(slice)?.parse().ok()
    })
}

fn user_slice_uid(slice: &str) -> Option<&str> {
    slice.strip_prefix("user-")?.strip_suffix(".slice")
}

/// The user of the systemd instance that a path is in or below. Only at this place the system's
/// systemd created it; elsewhere any user may have chosen the name.
fn user_manager(parts: &[&str]) -> Option<u32> {
    let ["user.slice", slice, service, ..] = parts else {
        return None;
    };
    let of_slice = user_slice_uid(slice)?;
    let of_service = service.strip_prefix("user@")?.strip_suffix(".service")?;
    let uid = of_service.parse().ok()?;
    (of_slice == of_service).then_some(uid)
}

/// The outermost unit: names below it are its own. A user's systemd is a unit itself and has units.
fn find_unit(parts: &[&str]) -> Option<Unit> {
    let named = |part: &&str, manager| Unit {
        name: sanitize(part.as_bytes(), 256),
        manager,
    };
    // System units are below slices. Elsewhere the name was chosen by others.
    let at = parts.iter().position(|part| !part.ends_with(".slice"))?;
    let outermost = parts.get(at).filter(|part| is_unit(part))?;
    let manager = user_manager(parts);
    let below = parts.get(at + 1..).unwrap_or_default();
    let of_a_user = below.iter().find(|part| manager.is_some() && is_unit(part));
    Some(of_a_user.map_or_else(|| named(outermost, None), |part| named(part, manager)))
}

fn is_unit(part: &str) -> bool {
    part.ends_with(".service") || part.ends_with(".scope")
}

/// The 3 of `session-3.scope`. Only the system's manager names sessions, a user's own does not.
fn session_id(unit: &Unit) -> Option<String> {
    let name = unit.name.strip_prefix("session-")?.strip_suffix(".scope")?;
    let fine = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (fine && unit.manager.is_none()).then(|| sanitize(name.as_bytes(), 32))
}

#[cfg(test)]
mod forged;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
