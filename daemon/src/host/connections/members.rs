//! Which processes without a GPU are part of a job: one listing of all processes, taken
//! only when a socket that is new must be attributed, and more seldom the longer it takes.

use super::WatchedJob;
use crate::host::cgroup::{Contained, Group, Teller, View};
use crate::host::crowd::list;
use crate::host::family::group;
use crate::host::namespace;
use crate::host::status::Status;
use crate::procfs::stat::Stat;
use gpukill_proto::snapshot::{Job, ProcessKey};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// As many processes of the box are listed.
const MOST: usize = 200_000;

/// As many processes of a job are looked at. A job that has more is not judged.
const MOST_MEMBERS: usize = 1_024;

/// Listings take at most a thousandth of the time, in these bounds.
const SHARE: u32 = 1_000;
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Decides when processes are listed.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
}

/// All processes of the box.
pub(super) struct Census {
    root: PathBuf,
    view: View,
    began: Instant,
    /// Each process, by its parent.
    children: BTreeMap<u32, Vec<ProcessKey>>,
}

impl Pace {
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// A listing and what follows from it took this long.
    pub(super) fn took(&mut self, time: Duration, now: Instant) {
        let pause = time.saturating_mul(SHARE);
        self.next = Some(now + pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

impl Census {
    /// # Errors
    /// When processes cannot be listed.
    pub(super) fn take(root: &Path) -> io::Result<Self> {
        let began = Instant::now();
        let mut children: BTreeMap<u32, Vec<ProcessKey>> = BTreeMap::new();
        let (pids, _) = list(root, MOST)?;
        for pid in pids {
            if let Ok(stat) = Stat::read(&root.join(pid.to_string())) {
                let start_ticks = stat.start_ticks;
                let siblings = children.entry(stat.parent).or_default();
                siblings.push(ProcessKey { pid, start_ticks });
            }
        }
        Ok(Self {
            root: root.to_owned(),
            view: namespace::view(root),
            began,
            children,
        })
    }

    /// How long it is in use.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The processes of this job, without those that hold a GPU. `None` where they are too
    /// many.
    pub(super) fn members(&self, watched: &WatchedJob) -> Option<Vec<ProcessKey>> {
        let is_other = |key: &ProcessKey| {
            !watched.processes.contains(key) && !watched.notebook_servers.contains(key)
        };
        let candidates: Vec<ProcessKey> = match &watched.job {
            Job::Tree(root) => self.below(*root)?,
            Job::Scheduler(_) | Job::Container { .. } | Job::Unit { .. } => {
                self.children.values().flatten().copied().collect()
            }
        };
        let members = candidates.into_iter().filter(is_other);
        let members: Vec<ProcessKey> = members
            .filter(|key| self.is_member(*key, watched))
            .take(MOST_MEMBERS + 1)
            .collect();
        (members.len() <= MOST_MEMBERS).then_some(members)
    }

    /// A process and all that descend from it.
    fn below(&self, root: ProcessKey) -> Option<Vec<ProcessKey>> {
        let mut found = vec![root];
        let mut seen: BTreeSet<u32> = [root.pid].into();
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            next += 1;
            let children = self.children.get(&parent.pid).into_iter().flatten();
            // A child that began before its parent is another's.
            let children = children.filter(|it| it.start_ticks >= parent.start_ticks);
            found.extend(children.filter(|it| seen.insert(it.pid)));
            if found.len() > MOST {
                return None;
            }
        }
        Some(found)
    }

    fn is_member(&self, key: ProcessKey, watched: &WatchedJob) -> bool {
        let directory = self.root.join(key.pid.to_string());
        let is_of = |uid: u32| {
            let uids = Status::read(&directory).uids;
            uids.known().is_some_and(|uids| uids.real == uid)
        };
        match &watched.job {
            Job::Tree(_) => watched.uid.is_some_and(is_of),
            Job::Unit { unit, uid } => {
                let own = group(&directory, self.view).unit;
                own.known().and_then(Option::as_ref) == Some(unit) && is_of(*uid)
            }
            Job::Scheduler(job) => {
                let own = group(&directory, self.view).scheduler;
                own.known().and_then(Option::as_ref) == Some(job)
            }
            Job::Container { id, manager } => {
                let Group { container, .. } = group(&directory, self.view);
                let own = container.known().and_then(Option::as_ref);
                own.is_some_and(|own| own.id == *id && manager_of(own) == *manager)
            }
        }
    }
}

fn manager_of(container: &Contained) -> Option<u32> {
    match container.teller {
        Teller::System => None,
        Teller::User(uid) => Some(uid),
    }
}
