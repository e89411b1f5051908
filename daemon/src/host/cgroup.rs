//! Where a process runs, from the text of `/proc/PID/cgroup`: its container, its
//! systemd unit and session, its job in a batch scheduler.
//!
//! Whoever may make a cgroup may name it. So a name is believed only where none
//! but root could have made it: a scheduler's job and a user's own systemd at
//! their place below the root, a unit of the system below slices alone, and a
//! container outside of every other container, unit and job. What lies below a
//! user's own systemd is that user's: they may call it what they like, and
//! [`Teller`] says so.

mod container;

mod scheduler;

use container::container;
pub(super) use container::{is_hash, is_name};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ContainerId, SchedulerJob, Unit};
use gpukill_proto::text::visible;
use scheduler::scheduler_job;

/// More of a cgroup file than this is not read.
pub(super) const CGROUP_MAX: u64 = 64 << 10;

/// Where one process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) container: Reading<Option<Contained>>,
    pub(super) unit: Reading<Option<Unit>>,
    pub(super) session: Reading<Option<String>>,
    pub(super) scheduler: Reading<Option<SchedulerJob>>,
    /// The user in whose slice it is.
    pub(super) slice: Option<u32>,
}

/// A container, as far as its cgroup tells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contained {
    pub(super) id: ContainerId,
    /// The uid of its pod, with dashes.
    pub(super) pod: Option<String>,
    pub(super) teller: Teller,
}

/// Whose files may tell about a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Teller {
    /// Those of the box: only root could make this cgroup.
    System,
    /// Those of this user, whose own systemd it is below.
    User(u32),
}

/// How much of the cgroups the daemon sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All: it is in the first cgroup namespace.
    Whole,
    /// Those below its own namespace's root, to which paths are relative.
    Part,
}

impl Group {
    /// Nothing is known of it, for this reason.
    pub(super) fn unknown(why: &Reading<()>) -> Self {
        Self {
            container: why.because(),
            unit: why.because(),
            session: why.because(),
            scheduler: why.because(),
            slice: None,
        }
    }

    /// Its path is longer than the kernel tells (`PATH_MAX`, in `proc_cgroup_show` of
    /// `kernel/cgroup/cgroup.c`). A scheduler, a container manager and systemd make short
    /// ones: only a user makes so long a one, below what was left to them, and must not
    /// thereby be out of reach of the rules. It counts as in nothing, and is ended with its
    /// own tree alone.
    pub(super) const fn too_deep() -> Self {
        Self {
            container: Reading::Value(None),
            unit: Reading::Value(None),
            session: Reading::Value(None),
            scheduler: Reading::Value(None),
            slice: None,
        }
    }

    /// What this cgroup text tells.
    pub(super) fn parse(text: &str, view: View) -> Self {
        // Version 1 has a line for each controller, version 2 one, a hybrid both.
        let mut lines: Vec<Line<'_>> = text.lines().filter_map(Line::parse).collect();
        if lines.is_empty() && !text.is_empty() {
            return Self::unknown(&Reading::Failed("unreadable cgroup".into()));
        }
        lines.sort_indirect_by_key(|line| line.rank);
        let said: Vec<Said> = lines.iter().map(|line| Said::of(line.path)).collect();
        let silent = said.iter().all(Said::is_nothing);
        let unclear = lines
            .iter()
            .any(|line| view == View::Part || line.path.starts_with("/.."));
        if silent && unclear {
            let why = Reading::Failed("its cgroup is out of sight".into());
            return Self {
                slice: user_slice(text),
                ..Self::unknown(&why)
            };
        }
        Self {
            container: first(&said, |said| said.container.as_ref()),
            unit: first(&said, |said| said.unit.as_ref()),
            session: first(&said, |said| said.session.as_ref()),
            scheduler: first(&said, |said| said.scheduler.as_ref()),
            slice: user_slice(text),
        }
    }
}

fn first<T: Clone>(said: &[Said], pick: impl Fn(&Said) -> Option<&T>) -> Reading<Option<T>> {
    Reading::Value(said.iter().find_map(pick).cloned())
}

/// One line: a hierarchy and a place in it.
struct Line<'a> {
    /// The lower the more its hierarchy tells.
    rank: u8,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        // What the kernel adds when the group of a zombie has been removed.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        // Container runtimes and schedulers use all hierarchies that limit
        // something, and memory most.
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        let rank = match controllers {
            _ if has("memory") => 0,
            _ if has("devices") => 1,
            _ if has("pids") => 2,
            "name=systemd" => 4,
            "" => 5,
            _ => 3,
        };
        path.starts_with('/').then_some(Self { rank, path })
    }
}

/// What one path tells.
#[derive(Default)]
struct Said {
    container: Option<Contained>,
    unit: Option<Unit>,
    session: Option<String>,
    scheduler: Option<SchedulerJob>,
}

impl Said {
    fn of(path: &str) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty());
        // The way up to what is above the daemon's own namespace.
        let parts: Vec<&str> = parts.skip_while(|part| *part == "..").collect();
        let scheduler = scheduler_job(&parts);
        // Some schedulers let a job divide its group.
        let found = container(&parts).filter(|_| scheduler.is_none());
        // What lies in a container is that container's own business.
        let with_container = found.as_ref().and_then(|(at, _)| parts.get(..=*at));
        let unit = unit(with_container.unwrap_or(&parts));
        let session = unit.as_ref().and_then(session);
        Self {
            container: found.map(|(_, container)| container),
            unit,
            session,
            scheduler,
        }
    }

    fn is_nothing(&self) -> bool {
        self.container.is_none() && self.unit.is_none() && self.scheduler.is_none()
    }
}

/// The user whose slice a process is in, by the text of its `/proc/PID/cgroup`. Only the
/// system's systemd makes `/user.slice/user-UID.slice`.
pub(super) fn user_slice(text: &str) -> Option<u32> {
    text.lines().filter_map(Line::parse).find_map(|line| {
        let mut parts = line.path.split('/').skip(1);
        let is_users = parts.next() == Some("user.slice");
        let slice = parts.next().filter(|_| is_users)?;
        of_user_slice(slice)?.parse().ok()
    })
}

fn of_user_slice(slice: &str) -> Option<&str> {
    slice.strip_prefix("user-")?.strip_suffix(".slice")
}

/// The user whose own systemd a path is in or below: only at this place did the
/// system's make it. Elsewhere anybody may have given the name.
fn user_manager(parts: &[&str]) -> Option<u32> {
    let ["user.slice", slice, service, ..] = parts else {
        return None;
    };
    let of_slice = of_user_slice(slice)?;
    let of_service = service.strip_prefix("user@")?.strip_suffix(".service")?;
    let uid = of_service.parse().ok()?;
    (of_slice == of_service).then_some(uid)
}

/// The outermost unit: what lies below is its own. A user's systemd is a unit
/// itself, and has units.
fn unit(parts: &[&str]) -> Option<Unit> {
    let named = |part: &&str, manager| Unit {
        name: visible(part.as_bytes(), 256),
        manager,
    };
    // The system's are in slices. Elsewhere somebody else gave the name.
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

/// The 3 of `session-3.scope`; the system's manager names sessions, a user's
/// own does not.
fn session(unit: &Unit) -> Option<String> {
    let name = unit.name.strip_prefix("session-")?.strip_suffix(".scope")?;
    let fine = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (fine && unit.manager.is_none()).then(|| visible(name.as_bytes(), 32))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod forged;

#[cfg(test)]
mod recorded;
