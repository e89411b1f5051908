//! One scan as its benchmark and its tests with real sockets run it; no stable interface.

use super::budget::BudgetOwner;
use super::scan::SocketScanner;
use super::{NetworkUse, SavedServedSockets, SocketFindings, WatchedJob};
use crate::host::status::StatusFile;
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::model::{Job, NetworkRole, ProcessKey};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The number of clients of each of these processes, each as a job of its own, from a first scan.
#[must_use]
pub fn count_clients(root: &Path, pids: &[u32]) -> Vec<Reading<u32>> {
    let found = scan_once(root, pids).into_iter();
    found.map(|found| found.network.clients).collect()
}

/// The ports on which this process listens, and the remote ends of its outgoing connections.
#[must_use]
pub fn ports_and_peers(root: &Path, pid: u32) -> Option<(BTreeSet<u16>, BTreeSet<SocketAddr>)> {
    let found = scan_once(root, &[pid]).pop()?;
    found.sockets.map(|it| (it.listens, it.peers))
}

/// Scans one job repeatedly.
pub struct JobWatch {
    scanner: SocketScanner,
    job: WatchedJob,
}

impl JobWatch {
    /// The tree of the process `root`, in which `process` holds a GPU, below these notebook
    /// servers. `None` where one of them has ended.
    #[must_use]
    pub fn new(root: u32, process: u32, servers: &[u32]) -> Option<Self> {
        let procfs = Path::new("/proc");
        let directory = procfs.join(process.to_string());
        let uids = StatusFile::read(&directory).uids;
        let servers: Option<BTreeSet<ProcessKey>> =
            servers.iter().map(|pid| key(procfs, *pid)).collect();
        Some(Self {
            scanner: SocketScanner::below(procfs.to_owned(), SavedServedSockets::unsaved()),
            job: WatchedJob {
                job: Job::Tree(key(procfs, root)?),
                uid: uids.known().map(|uids| uids.real),
                owner: BudgetOwner::Unknown,
                processes: [key(procfs, process)?].into(),
                notebook_servers: servers?,
                kernels: BTreeSet::new(),
            },
        })
    }

    /// Its network use now.
    pub fn now(&mut self) -> (Reading<NetworkRole>, Reading<u32>) {
        self.scanner.forget_namespaces();
        let found = self
            .scanner
            .scan_jobs(std::slice::from_ref(&self.job))
            .pop();
        let unknown = || NetworkUse::unknown(&Reading::Failed("not scanned".into()));
        let network = found.map_or_else(unknown, |(_, found)| found.network);
        (network.role, network.clients)
    }
}

fn key(root: &Path, pid: u32) -> Option<ProcessKey> {
    let stat = Stat::read(&root.join(pid.to_string())).ok()?;
    Some(ProcessKey::new(pid, stat.start_ticks))
}

fn scan_once(root: &Path, pids: &[u32]) -> Vec<SocketFindings> {
    let keys = pids.iter().filter_map(|pid| key(root, *pid));
    let jobs: Vec<WatchedJob> = keys
        .map(|key| WatchedJob {
            job: Job::Tree(key),
            uid: None,
            owner: BudgetOwner::Unknown,
            processes: [key].into(),
            notebook_servers: BTreeSet::new(),
            kernels: BTreeSet::new(),
        })
        .collect();
    let found =
        SocketScanner::below(PathBuf::from(root), SavedServedSockets::unsaved()).scan_jobs(&jobs);
    found.into_iter().map(|(_, found)| found).collect()
}
