//! Who uses the jobs on GPUs over TCP: whether a job is a service, a notebook or neither,
//! and how many clients it has; and with which hosts its processes have connected.
//!
//! A thread of its own looks: a table of sockets may be megabytes. Sockets are counted for
//! the whole job, since an engine's API server is often another process than the one that
//! holds the GPU. Sockets other than those of TCP are not counted.

mod addresses;

mod budget;

mod collector;

mod look;

mod members;

mod namespaces;

mod serving;

mod table;

mod use_of_job;

#[doc(hidden)]
pub mod measured;

pub(crate) mod untrusted;

use budget::Share;
use core::net::SocketAddr;
use gpukill_policy::turns::in_turns;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Job, NetworkRole, ProcessKey};
use look::Look;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A job, and the table of a network namespace, are looked at again after this time.
const EVERY: Duration = Duration::from_secs(10);

/// Older results are reported as old: the thread does not keep up, or is stuck.
const OLD: Duration = Duration::from_secs(60);

/// A look that takes longer is not waited for.
const SLOW: Duration = Duration::from_secs(1);

/// As many processes are looked at: as many of each person, or all that they have.
const MOST: usize = 4_096;

/// The asking side of the thread that looks. Dropping it ends the thread.
pub(crate) struct Connections(Arc<Shared>);

/// Writes a set of inodes to a file.
pub(crate) type Keep = Box<dyn FnMut(&BTreeSet<u64>) + Send>;

/// Which listening sockets others have been connected to: what a restart of the daemon
/// must not forget, or a service that is also its own client seems private.
pub(crate) struct Kept {
    /// Their inodes. No two sockets of one boot have the same.
    pub(crate) sockets: BTreeSet<u64>,
    /// Writes them down, whenever there is one more.
    pub(crate) keep: Keep,
}

/// What else belongs to a process that holds a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Affiliation {
    /// Its job; `None` where that is not known.
    pub(crate) job: Option<Job>,
    /// Its real user; `None` where that is not known.
    pub(crate) uid: Option<u32>,
    /// The person behind that; `None` where it is not known.
    pub(crate) person: Option<u32>,
    /// The notebook servers above it.
    pub(crate) notebook_servers: Vec<ProcessKey>,
}

/// A job, as far as it is known before its sockets are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedJob {
    job: Job,
    uid: Option<u32>,
    /// Whose part of the work it is.
    share: Share,
    /// Its processes that hold a GPU.
    processes: BTreeSet<ProcessKey>,
    notebook_servers: BTreeSet<ProcessKey>,
}

/// What a look found of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    /// How others use its job.
    network: NetworkUse,
    /// `None` where that is not known.
    sockets: Option<Sockets>,
}

/// How others use a job over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkUse {
    pub(crate) role: Reading<NetworkRole>,
    /// Connections of others, open or closed within the last minute; unsupported where
    /// others cannot connect to it.
    pub(crate) clients: Reading<u32>,
}

/// The TCP sockets that a process has open in its own network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sockets {
    /// The ports on which it listens: the 64 lowest of them.
    pub(crate) listens: BTreeSet<u16>,
    /// The far ends of its established connections, but of those at whose port anybody in
    /// its network listens: they may have been made to it, and a stranger chooses the port
    /// that he comes from. 256 of them, and those of this very box only as far as there is
    /// room.
    pub(crate) peers: BTreeSet<SocketAddr>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    wanted: BTreeMap<ProcessKey, Affiliation>,
    found: BTreeMap<ProcessKey, (Found, Instant)>,
    /// Since when it looks.
    since: Option<Instant>,
    ended: bool,
}

impl Affiliation {
    fn share(&self) -> Share {
        Share::of(self.job.as_ref(), self.person)
    }

    /// Whether what was found with the one is true with the other: not for whose part of the
    /// work it is.
    fn is_like(&self, other: &Self) -> bool {
        (&self.job, self.uid, &self.notebook_servers)
            == (&other.job, other.uid, &other.notebook_servers)
    }
}

impl Found {
    /// Nothing, for this reason.
    fn unknown(why: &Reading<()>) -> Self {
        Self {
            network: NetworkUse::unknown(why),
            sockets: None,
        }
    }
}

impl Kept {
    /// Of nothing, nowhere.
    pub(crate) fn nowhere() -> Self {
        Self {
            sockets: BTreeSet::new(),
            keep: Box::new(|_| ()),
        }
    }
}

impl NetworkUse {
    /// Not known, for this reason.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            role: why.because(),
            clients: why.because(),
        }
    }
}

impl Connections {
    /// Looks below this root, `/proc` but in tests.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(root: PathBuf, kept: Kept) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let answers = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("connections".into())
            .spawn(move || answers.look_again_and_again(Look::below(root, kept)))?;
        Ok(Self(shared))
    }

    /// Looks at these from now on, and at those that are new at once.
    pub(crate) fn want(&self, processes: BTreeMap<ProcessKey, Affiliation>) {
        let processes = shared_out(processes, MOST);
        let mut known = self.0.lock();
        if known.wanted == processes {
            return;
        }
        let is_same = |key: &ProcessKey| {
            let (before, now) = (known.wanted.get(key), processes.get(key));
            before
                .zip(now)
                .is_some_and(|(before, now)| before.is_like(now))
        };
        let kept: BTreeSet<ProcessKey> = known.found.keys().copied().filter(is_same).into_set();
        known.found.retain(|key, _| kept.contains(key));
        known.wanted = processes;
        self.0.changed.notify_all();
    }

    /// Waits until all of them were looked at once, but not past `deadline`, and
    /// not for a look that takes long.
    pub(crate) fn settle(&self, deadline: Instant) {
        let mut known = self.0.lock();
        while known.is_worth_waiting() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How others use the job of a process, by the last look at it.
    pub(crate) fn network_use(&self, process: ProcessKey) -> NetworkUse {
        let known = self.0.lock();
        match known.found.get(&process) {
            Some((found, at)) if at.elapsed() > OLD => {
                let seconds = u32::try_from(at.elapsed().as_secs()).unwrap_or(u32::MAX);
                NetworkUse {
                    role: found.network.role.clone().aged(seconds),
                    clients: found.network.clients.clone().aged(seconds),
                }
            }
            Some((found, _)) => found.network.clone(),
            None => NetworkUse::unknown(&Reading::Failed("not looked at yet".into())),
        }
    }

    /// The sockets of a process, by the last look at it; `None` where it was not looked
    /// at, they could not be told, or that is too long ago.
    pub(crate) fn sockets_of(&self, process: ProcessKey) -> Option<Sockets> {
        let known = self.0.lock();
        let (found, at) = known.found.get(&process)?;
        let sockets = found.sockets.as_ref().filter(|_| at.elapsed() <= OLD);
        sockets.cloned()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Known {
    fn is_worth_waiting(&self) -> bool {
        let is_slow = self.since.is_some_and(|since| since.elapsed() > SLOW);
        !is_slow && self.wanted.keys().any(|key| !self.found.contains_key(key))
    }

    /// The jobs with a process that is new, or was looked at too long ago, by turns of those
    /// whose they are.
    fn due(&self) -> Vec<WatchedJob> {
        let is_due = |key: &ProcessKey| {
            let found = self.found.get(key);
            found.is_none_or(|(_, at)| at.elapsed() >= EVERY)
        };
        let mut jobs = self.jobs();
        jobs.retain(|job| job.processes.iter().any(is_due));
        in_turns(jobs.into_iter().map(|job| (job.share.clone(), job)))
    }

    /// The jobs of the processes that are wanted.
    fn jobs(&self) -> Vec<WatchedJob> {
        let mut jobs: BTreeMap<Job, WatchedJob> = BTreeMap::new();
        for (key, affiliation) in &self.wanted {
            // A process whose job is not known is looked at with those below it.
            let job = affiliation.job.clone().unwrap_or(Job::Tree(*key));
            let watched = jobs.entry(job).or_insert_with_key(|job| WatchedJob {
                job: job.clone(),
                uid: affiliation.uid,
                share: affiliation.share(),
                processes: BTreeSet::new(),
                notebook_servers: BTreeSet::new(),
            });
            watched.processes.insert(*key);
            let servers = affiliation.notebook_servers.iter().copied();
            watched.notebook_servers.extend(servers);
        }
        jobs.into_values().collect()
    }

    /// How long until a process is due.
    fn wait(&self) -> Duration {
        let looked_at = self.found.values().map(|(_, at)| at.elapsed());
        let oldest = looked_at.max().unwrap_or_default();
        EVERY.saturating_sub(oldest)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_again_and_again(&self, mut look: Look) {
        while let Some((due, jobs)) = self.next() {
            look.keep_only(&jobs);
            let mut round = look.begin();
            for job in &due {
                // At once: the next may take long.
                if !self.publish(look.job(job, &mut round)) {
                    return;
                }
            }
            look.end(&round);
            self.lock().since = None;
            self.changed.notify_all();
        }
    }

    /// False at the end.
    fn publish(&self, found: Vec<(ProcessKey, Found)>) -> bool {
        let now = Instant::now();
        let mut known = self.lock();
        for (key, found) in found {
            if known.wanted.contains_key(&key) {
                known.found.insert(key, (found, now));
            }
        }
        self.changed.notify_all();
        !known.ended
    }

    /// The jobs to look at, when it is time, and all that there are; `None` at the end.
    fn next(&self) -> Option<(Vec<WatchedJob>, BTreeSet<Job>)> {
        let mut known = self.lock();
        loop {
            if known.ended {
                return None;
            }
            let due = known.due();
            if !due.is_empty() {
                known.since = Some(Instant::now());
                let jobs = known.jobs().into_iter().map(|it| it.job).collect();
                return Some((due, jobs));
            }
            let wait = known.wait().max(Duration::from_millis(100));
            let waited = self.changed.wait_timeout(known, wait);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// As many of these processes, by turns of those whose they are.
fn shared_out(
    processes: BTreeMap<ProcessKey, Affiliation>,
    most: usize,
) -> BTreeMap<ProcessKey, Affiliation> {
    if processes.len() <= most {
        return processes;
    }
    let shares = processes.into_iter().map(|it| (it.1.share(), it));
    in_turns(shares).into_iter().take(most).into_map()
}

#[cfg(test)]
mod tests;
