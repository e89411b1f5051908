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

/// Those for jobs of which nothing is known yet may take a twentieth.
const SHARE_OF_NEW: u32 = 20;

/// Decides when processes are listed.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
    next_for_new: Option<Instant>,
}

/// All processes of the box.
pub(super) struct Census {
    root: PathBuf,
    view: View,
    /// How long it has taken so far.
    pub(super) took: Duration,
    /// Each process, by its parent.
    children: BTreeMap<u32, Vec<ProcessKey>>,
    /// The processes of each job that is no tree, once somebody has asked for one; of units
    /// those of all users, as if they were root's.
    places: Option<BTreeMap<Job, Vec<ProcessKey>>>,
}

impl Pace {
    /// Whether they may be listed for a job, of which nothing is known yet.
    pub(super) fn allows(&self, is_new: bool, now: Instant) -> bool {
        let next = match is_new {
            true => self.next_for_new,
            false => self.next,
        };
        next.is_none_or(|next| now >= next)
    }

    /// A listing took this long.
    pub(super) fn took(&mut self, time: Duration, now: Instant) {
        let next = |share: u32| {
            let pause = time.saturating_mul(share);
            Some(now + pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
        };
        (self.next, self.next_for_new) = (next(SHARE), next(SHARE_OF_NEW));
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
            took: began.elapsed(),
            children,
            places: None,
        })
    }

    /// The processes of this job, without those that hold a GPU. `None` where they are too
    /// many.
    pub(super) fn members(&mut self, watched: &WatchedJob) -> Option<Vec<ProcessKey>> {
        let (candidates, uid) = match &watched.job {
            Job::Tree(root) => (self.below(*root)?, Some(watched.uid)),
            Job::Unit { unit, uid } => {
                let unit = unit.clone();
                (self.at(&Job::Unit { unit, uid: 0 }), Some(Some(*uid)))
            }
            job @ (Job::Scheduler(_) | Job::Container { .. }) => (self.at(job), None),
        };
        let is_other = |key: &ProcessKey| {
            !watched.processes.contains(key) && !watched.notebook_servers.contains(key)
        };
        let is_of = |key: &ProcessKey| uid.is_none_or(|uid| self.is_of(*key, uid));
        let members = candidates.into_iter().filter(is_other);
        let members: Vec<ProcessKey> = members.filter(is_of).take(MOST_MEMBERS + 1).collect();
        (members.len() <= MOST_MEMBERS).then_some(members)
    }

    /// The processes of a job that is no tree.
    fn at(&mut self, job: &Job) -> Vec<ProcessKey> {
        let began = Instant::now();
        let places = match self.places.take() {
            Some(places) => places,
            None => self.read_places(),
        };
        let found = places.get(job).cloned().unwrap_or_default();
        self.places = Some(places);
        self.took += began.elapsed();
        found
    }

    /// Reads of each process once where it is, however many jobs there are.
    fn read_places(&self) -> BTreeMap<Job, Vec<ProcessKey>> {
        let mut places: BTreeMap<Job, Vec<ProcessKey>> = BTreeMap::new();
        for key in self.children.values().flatten() {
            let Group {
                unit,
                scheduler,
                container,
                ..
            } = group(&self.root.join(key.pid.to_string()), self.view);
            let unit = unit.known().cloned().flatten();
            let scheduler = scheduler.known().cloned().flatten();
            let container = container.known().cloned().flatten();
            let jobs = [
                unit.map(|unit| Job::Unit { unit, uid: 0 }),
                scheduler.map(Job::Scheduler),
                container.map(|own| Job::Container {
                    manager: manager_of(&own),
                    id: own.id,
                }),
            ];
            for job in jobs.into_iter().flatten() {
                places.entry(job).or_default().push(*key);
            }
        }
        places
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

    /// Whether it is this user's process.
    fn is_of(&self, key: ProcessKey, uid: Option<u32>) -> bool {
        let uids = Status::read(&self.root.join(key.pid.to_string())).uids;
        uids.known().is_some_and(|uids| Some(uids.real) == uid)
    }
}

fn manager_of(container: &Contained) -> Option<u32> {
    match container.teller {
        Teller::System => None,
        Teller::User(uid) => Some(uid),
    }
}
