//! The network use of jobs on GPUs over TCP: whether a job is a service, a notebook or neither, its
//! number of clients, and the hosts that its processes are connected to.
//!
//! A thread of its own reads the sockets: a socket table may have megabytes. Sockets count for the
//! whole job, since the API server of an engine is often another process than the GPU process. Only
//! TCP sockets count.

mod addresses;
#[doc(hidden)]
pub mod bench_api;
mod budget;
mod collector;
mod job_processes;
mod job_use;
mod namespaces;
mod scan;
mod served;
mod table;

use budget::BudgetOwner;
use core::net::SocketAddr;
use gpukill_policy::round_robin::interleave;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, RetainEntries as _};
use gpukill_proto::model::{Job, NetworkRole, ProcessKey};
use gpukill_proto::reading::Reading;
use scan::SocketScanner;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a job and the table of a network namespace are read.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// From this age results are reported as stale: the thread does not keep up, or is stuck.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// A scan that takes longer is not waited for.
const SLOW_SCAN: Duration = Duration::from_secs(1);

/// How many processes are scanned: equally many of each owner, or all that the owner has.
const MAX_PROCESSES: usize = 4_096;

/// A handle on the scan thread. Dropping it stops the thread.
pub(crate) struct SocketWatcher(Arc<WatcherShared>);

pub(crate) type SaveInodes = Box<dyn FnMut(&BTreeSet<u64>) + Send>;

/// Listening sockets that external clients were connected to. A restart of the daemon must not lose
/// them: a service that is also its own client would seem private.
pub(crate) struct SavedServedSockets {
    /// Their inodes, which are unique during one boot.
    pub(crate) sockets: BTreeSet<u64>,
    /// Saves them whenever one is added.
    pub(crate) save: SaveInodes,
}

/// Further facts about a process that holds a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessAttribution {
    /// `None` where its job is unknown.
    pub(crate) job: Option<Job>,
    /// Its real uid; `None` where it is unknown.
    pub(crate) uid: Option<u32>,
    /// The person behind it; `None` where unknown.
    pub(crate) person: Option<u32>,
    /// The notebook servers above it.
    pub(crate) notebook_servers: Vec<ProcessKey>,
    /// Whether it runs a notebook kernel.
    pub(crate) is_notebook_kernel: bool,
}

/// A job before its sockets are read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedJob {
    job: Job,
    uid: Option<u32>,
    /// The owner of the scan budget that it uses.
    owner: BudgetOwner,
    /// Its processes that hold a GPU.
    processes: BTreeSet<ProcessKey>,
    notebook_servers: BTreeSet<ProcessKey>,
    /// Those of `processes` that run a notebook kernel.
    kernels: BTreeSet<ProcessKey>,
}

/// The result of scanning a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SocketFindings {
    network: NetworkUse,
    /// `None` where unknown.
    sockets: Option<ProcessSockets>,
}

/// The use of a job over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkUse {
    pub(crate) role: Reading<NetworkRole>,
    /// Connections of external clients, open or closed within the last minute; unsupported where
    /// none can connect.
    pub(crate) clients: Reading<u32>,
}

/// The TCP sockets of a process in its own network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProcessSockets {
    /// The ports on which it listens: the lowest 64 of them.
    pub(crate) listens: BTreeSet<u16>,
    /// The remote ends of its established connections, except at a local port where any process of
    /// its network listens: these may be incoming connections, and a stranger chooses its source
    /// port. At most 256, those on this host last.
    pub(crate) peers: BTreeSet<SocketAddr>,
}

#[derive(Default)]
struct WatcherShared {
    state: Mutex<WatcherState>,
    changed: Condvar,
}

#[derive(Default)]
struct WatcherState {
    watched: BTreeMap<ProcessKey, ProcessAttribution>,
    findings: BTreeMap<ProcessKey, (SocketFindings, Instant)>,
    /// When the current scan started.
    scanning_since: Option<Instant>,
    is_stopped: bool,
}

impl ProcessAttribution {
    fn budget_owner(&self) -> BudgetOwner {
        BudgetOwner::new(self.job.as_ref(), self.person)
    }

    /// Whether a finding for one is valid for the other: the budget owner does not matter.
    fn has_same_findings(&self, other: &Self) -> bool {
        (&self.job, self.uid, &self.notebook_servers)
            == (&other.job, other.uid, &other.notebook_servers)
            && self.is_notebook_kernel == other.is_notebook_kernel
    }
}

impl SocketFindings {
    /// No findings, for this reason.
    fn unknown(why: &Reading<()>) -> Self {
        Self {
            network: NetworkUse::unknown(why),
            sockets: None,
        }
    }
}

impl SavedServedSockets {
    /// No sockets, and no file to save them to.
    pub(crate) fn unsaved() -> Self {
        Self {
            sockets: BTreeSet::new(),
            save: Box::new(|_| ()),
        }
    }
}

impl NetworkUse {
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            role: why.as_unknown(),
            clients: why.as_unknown(),
        }
    }
}

impl SocketWatcher {
    /// Starts the scan thread below this root, `/proc` except in tests.
    pub(crate) fn start(root: PathBuf, saved: SavedServedSockets) -> std::io::Result<Self> {
        let shared = Arc::new(WatcherShared::default());
        let answers = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("sockets".into())
            .spawn(move || answers.run(SocketScanner::below(root, saved)))?;
        Ok(Self(shared))
    }

    /// Scans these processes from now on, new ones at once.
    pub(crate) fn watch(&self, processes: BTreeMap<ProcessKey, ProcessAttribution>) {
        let processes = limit_processes(processes, MAX_PROCESSES);
        let mut known = self.0.lock();
        if known.watched == processes {
            return;
        }
        let is_same = |key: &ProcessKey| {
            let (before, now) = (known.watched.get(key), processes.get(key));
            before
                .zip(now)
                .is_some_and(|(before, now)| before.has_same_findings(now))
        };
        let kept: BTreeSet<ProcessKey> = known.findings.keys().copied().filter(is_same).into_set();
        known.findings.retain_entries(|key, _| kept.contains(key));
        known.watched = processes;
        self.0.changed.notify_all();
    }

    /// Waits until all of them were scanned once, at most until `deadline`, and not for a slow
    /// scan.
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

    /// The network use of a process's job, from the last scan.
    pub(crate) fn network_use(&self, process: ProcessKey) -> NetworkUse {
        let known = self.0.lock();
        match known.findings.get(&process) {
            Some((found, at)) if at.elapsed() > STALE_AFTER => {
                let seconds = u32::try_from(at.elapsed().as_secs()).unwrap_or(u32::MAX);
                NetworkUse {
                    role: found.network.role.clone().aged(seconds),
                    clients: found.network.clients.clone().aged(seconds),
                }
            }
            Some((found, _)) => found.network.clone(),
            None => NetworkUse::unknown(&Reading::Failed("not scanned yet".into())),
        }
    }

    /// The sockets of a process from the last scan; `None` where it was not scanned, the sockets
    /// are unknown, or the scan is too old.
    pub(crate) fn process_sockets(&self, process: ProcessKey) -> Option<ProcessSockets> {
        let known = self.0.lock();
        let (found, at) = known.findings.get(&process)?;
        let sockets = found
            .sockets
            .as_ref()
            .filter(|_| at.elapsed() <= STALE_AFTER);
        sockets.cloned()
    }
}

impl Drop for SocketWatcher {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.changed.notify_all();
    }
}

impl WatcherState {
    fn is_worth_waiting(&self) -> bool {
        let is_slow = self
            .scanning_since
            .is_some_and(|since| since.elapsed() > SLOW_SCAN);
        !is_slow
            && self
                .watched
                .keys()
                .any(|key| !self.findings.contains_key(key))
    }

    /// The jobs with a process that is new or was scanned too long ago, alternating between owners.
    fn due_jobs(&self) -> Vec<WatchedJob> {
        let is_due = |key: &ProcessKey| {
            let found = self.findings.get(key);
            found.is_none_or(|(_, at)| at.elapsed() >= REFRESH_INTERVAL)
        };
        let mut jobs = self.jobs();
        jobs.retain(|job| job.processes.iter().any(is_due));
        interleave(jobs.into_iter().map(|job| (job.owner.clone(), job)))
    }

    fn jobs(&self) -> Vec<WatchedJob> {
        let mut jobs: BTreeMap<Job, WatchedJob> = BTreeMap::new();
        for (key, attribution) in &self.watched {
            // A process with an unknown job is scanned with its descendants.
            let job = attribution.job.clone().unwrap_or(Job::Tree(*key));
            let watched = jobs.entry(job).or_insert_with_key(|job| WatchedJob {
                job: job.clone(),
                uid: attribution.uid,
                owner: attribution.budget_owner(),
                processes: BTreeSet::new(),
                notebook_servers: BTreeSet::new(),
                kernels: BTreeSet::new(),
            });
            watched.processes.insert(*key);
            watched
                .kernels
                .extend(attribution.is_notebook_kernel.then_some(*key));
            let servers = attribution.notebook_servers.iter().copied();
            watched.notebook_servers.extend(servers);
        }
        jobs.into_values().collect()
    }

    /// How long until a process is due.
    fn time_until_due(&self) -> Duration {
        let looked_at = self.findings.values().map(|(_, at)| at.elapsed());
        let oldest = looked_at.max().unwrap_or_default();
        REFRESH_INTERVAL.saturating_sub(oldest)
    }
}

impl WatcherShared {
    fn lock(&self) -> MutexGuard<'_, WatcherState> {
        // No code panics while it holds this lock; if some did, the values in it would still be
        // whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut scanner: SocketScanner) {
        while let Some((due, jobs)) = self.next_jobs() {
            scanner.keep_only(&jobs);
            let mut round = scanner.start_round();
            for job in &due {
                // Published at once: the next job may take long.
                if !self.publish(scanner.scan_job(job, &mut round)) {
                    return;
                }
            }
            scanner.end_round(&round);
            self.lock().scanning_since = None;
            self.changed.notify_all();
        }
    }

    /// Publishes findings; false when the watcher stops.
    fn publish(&self, findings: Vec<(ProcessKey, SocketFindings)>) -> bool {
        let now = Instant::now();
        let mut known = self.lock();
        for (key, findings) in findings {
            if known.watched.contains_key(&key) {
                known.findings.insert(key, (findings, now));
            }
        }
        self.changed.notify_all();
        !known.is_stopped
    }

    /// Waits for due jobs. Returns them and all jobs; `None` when the watcher stops.
    fn next_jobs(&self) -> Option<(Vec<WatchedJob>, BTreeSet<Job>)> {
        let mut known = self.lock();
        loop {
            if known.is_stopped {
                return None;
            }
            let due = known.due_jobs();
            if !due.is_empty() {
                known.scanning_since = Some(Instant::now());
                let jobs = known.jobs().into_iter().map(|it| it.job).into_set();
                return Some((due, jobs));
            }
            let wait = known.time_until_due().max(Duration::from_millis(100));
            let waited = self.changed.wait_timeout(known, wait);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Selects up to `max_processes` of these processes, alternating between owners.
fn limit_processes(
    processes: BTreeMap<ProcessKey, ProcessAttribution>,
    max_processes: usize,
) -> BTreeMap<ProcessKey, ProcessAttribution> {
    if processes.len() <= max_processes {
        return processes;
    }
    let shares = processes.into_iter().map(|it| (it.1.budget_owner(), it));
    interleave(shares)
        .into_iter()
        .take(max_processes)
        .into_map()
}

/// The parser of socket lists for fuzzing, and what must hold for any input.
pub(crate) mod fuzz_api {
    use super::addresses::LocalAddresses;
    use super::table::SocketTable;

    /// `/proc/PID/net/tcp`.
    pub fn sockets(bytes: &[u8]) {
        // For any addresses: the parser returns.
        let _ = LocalAddresses::read(bytes, Some(bytes));
        let Ok(table) = SocketTable::read(bytes, None, LocalAddresses::default()) else {
            return;
        };
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let listeners: Vec<u64> = table.listeners().iter().copied().collect();
        assert!(listeners.len() < lines.max(1));
        for inode in &listeners {
            let local = table.listening_address(*inode).expect("it listens");
            assert_eq!(local.ip(), local.ip().to_canonical());
            // Both ends of a connection may have been closed, each with a line of its own.
            assert!(table.connections_to(local).count() < 2 * lines.max(1));
        }
        // Inodes from these bytes.
        let text = String::from_utf8_lossy(bytes);
        let fields = text.split_ascii_whitespace();
        let inodes: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        let mut peers = table.peers(&inodes);
        assert!(peers.all(|peer| peer.ip() == peer.ip().to_canonical()));
        assert!(table.peers(&[0]).next().is_none());
    }
}

#[cfg(test)]
mod tests;
