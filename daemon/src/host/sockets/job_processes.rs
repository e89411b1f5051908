//! Finds the processes of a job without a GPU. All processes are listed for that only when a new
//! socket must be attributed, and less often the longer it takes.

use super::WatchedJob;
use crate::host::ancestors::cgroup_location;
use crate::host::cgroup::{CgroupLocation, CgroupView};
use crate::host::namespace;
use crate::host::process_table::list_pids;
use crate::host::status::StatusFile;
use crate::procfs::stat::Stat;
use gpukill_proto::model::{Job, ProcessKey};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many processes of the host are listed.
const MAX_PROCESSES: usize = 200_000;

/// How many processes of a job are read. A job with more is unknown.
const MAX_MEMBERS: usize = 1_024;

/// Listings take at most this fraction of the time, within these bounds.
const TIME_DIVISOR: u32 = 1_000;
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Listings for unknown jobs may take a twentieth.
const NEW_JOB_TIME_DIVISOR: u32 = 20;

/// Decides when processes are listed.
#[derive(Debug, Default)]
pub(super) struct SurveyPace {
    next: Option<Instant>,
    next_for_new: Option<Instant>,
}

pub(super) struct ProcessCensus {
    root: PathBuf,
    view: CgroupView,
    /// How long it has taken so far.
    pub(super) duration: Duration,
    /// The processes by parent.
    children: BTreeMap<u32, Vec<ProcessKey>>,
    /// The processes of each job that is no tree, once one is requested; those of a unit for all
    /// users, stored under root.
    by_job: Option<BTreeMap<Job, Vec<ProcessKey>>>,
}

impl SurveyPace {
    /// Whether processes may be listed for a job; `is_new` where it is still unknown.
    pub(super) fn allows(&self, is_new: bool, now: Instant) -> bool {
        let next = match is_new {
            true => self.next_for_new,
            false => self.next,
        };
        next.is_none_or(|next| now >= next)
    }

    pub(super) fn record(&mut self, time: Duration, now: Instant) {
        let next = |share: u32| {
            let pause = time.saturating_mul(share);
            Some(now + pause.clamp(MIN_PAUSE, MAX_PAUSE))
        };
        (self.next, self.next_for_new) = (next(TIME_DIVISOR), next(NEW_JOB_TIME_DIVISOR));
    }
}

impl ProcessCensus {
    /// # Errors
    /// When processes cannot be listed.
    pub(super) fn list_all(root: &Path) -> io::Result<Self> {
        let start = Instant::now();
        let mut children: BTreeMap<u32, Vec<ProcessKey>> = BTreeMap::new();
        let (pids, _) = list_pids(root, MAX_PROCESSES)?;
        for pid in pids {
            if let Ok(stat) = Stat::read(&root.join(pid.to_string())) {
                let start_ticks = stat.start_ticks;
                let siblings = children.entry(stat.parent).or_default();
                siblings.push(ProcessKey { pid, start_ticks });
            }
        }
        Ok(Self {
            root: root.to_owned(),
            view: namespace::cgroup_view(root),
            duration: start.elapsed(),
            children,
            by_job: None,
        })
    }

    /// The processes of this job that hold no GPU. `None` where there are too many.
    pub(super) fn members_of(&mut self, watched: &WatchedJob) -> Option<Vec<ProcessKey>> {
        let (candidates, uid) = match &watched.job {
            Job::Tree(root) => (self.descendants(*root)?, Some(watched.uid)),
            Job::Unit { unit, uid } => {
                let unit = unit.clone();
                (
                    self.processes_of(&Job::Unit { unit, uid: 0 }),
                    Some(Some(*uid)),
                )
            }
            job @ (Job::Scheduler(_) | Job::Container { .. }) => (self.processes_of(job), None),
        };
        let is_other = |key: &ProcessKey| {
            !watched.processes.contains(key) && !watched.notebook_servers.contains(key)
        };
        let is_of = |key: &ProcessKey| uid.is_none_or(|uid| self.belongs_to(*key, uid));
        let members = candidates.into_iter().filter(is_other);
        let members: Vec<ProcessKey> = members.filter(is_of).take(MAX_MEMBERS + 1).collect();
        (members.len() <= MAX_MEMBERS).then_some(members)
    }

    /// The processes of a job that is no tree.
    fn processes_of(&mut self, job: &Job) -> Vec<ProcessKey> {
        let start = Instant::now();
        let processes_by_job = match self.by_job.take() {
            Some(processes_by_job) => processes_by_job,
            None => self.read_jobs(),
        };
        let found = processes_by_job.get(job).cloned().unwrap_or_default();
        self.by_job = Some(processes_by_job);
        self.duration += start.elapsed();
        found
    }

    /// Reads the cgroup of each process once, however many jobs there are.
    fn read_jobs(&self) -> BTreeMap<Job, Vec<ProcessKey>> {
        let mut processes_by_job: BTreeMap<Job, Vec<ProcessKey>> = BTreeMap::new();
        for key in self.children.values().flatten() {
            let CgroupLocation {
                unit,
                scheduler,
                container,
                ..
            } = cgroup_location(&self.root.join(key.pid.to_string()), self.view);
            let unit = unit.known().cloned().flatten();
            let scheduler = scheduler.known().cloned().flatten();
            let container = container.known().cloned().flatten();
            let jobs = [
                unit.map(|unit| Job::Unit { unit, uid: 0 }),
                scheduler.map(Job::Scheduler),
                container.map(|own| Job::Container {
                    manager: own.manager.uid(),
                    id: own.id,
                }),
            ];
            for job in jobs.into_iter().flatten() {
                processes_by_job.entry(job).or_default().push(*key);
            }
        }
        processes_by_job
    }

    fn descendants(&self, root: ProcessKey) -> Option<Vec<ProcessKey>> {
        let mut processes = vec![root];
        let mut visited: BTreeSet<u32> = [root.pid].into();
        let mut next = 0;
        while let Some(parent) = processes.get(next).copied() {
            next += 1;
            let children = self.children.get(&parent.pid).into_iter().flatten();
            // A child that started before its parent belongs to another process.
            let children = children.filter(|it| it.start_ticks >= parent.start_ticks);
            processes.extend(children.filter(|it| visited.insert(it.pid)));
            if processes.len() > MAX_PROCESSES {
                return None;
            }
        }
        Some(processes)
    }

    fn belongs_to(&self, key: ProcessKey, uid: Option<u32>) -> bool {
        let uids = StatusFile::read(&self.root.join(key.pid.to_string())).uids;
        uids.known().is_some_and(|uids| Some(uids.real) == uid)
    }
}
