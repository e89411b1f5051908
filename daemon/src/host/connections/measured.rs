//! One look as its benchmark and the tests of it with true sockets take it; no interface.

use super::budget::Share;
use super::look::Look;
use super::{Found, Kept, NetworkUse, WatchedJob};
use crate::host::status::Status;
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Job, NetworkRole, ProcessKey};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How many are connected to each of these processes, each a job of its own, by a first
/// look at them.
#[must_use]
pub fn connections(root: &Path, pids: &[u32]) -> Vec<Reading<u32>> {
    let found = look(root, pids).into_iter();
    found.map(|found| found.network.clients).collect()
}

/// The ports on which this process listens, and the far ends of the connections that it
/// made.
#[must_use]
pub fn of(root: &Path, pid: u32) -> Option<(BTreeSet<u16>, BTreeSet<SocketAddr>)> {
    let found = look(root, &[pid]).pop()?;
    found.sockets.map(|it| (it.listens, it.peers))
}

/// Looks at one job again and again.
pub struct Watch {
    look: Look,
    job: WatchedJob,
}

impl Watch {
    /// The tree of the process `root`, in which `process` holds a GPU, below these notebook
    /// servers. `None` where one of them has ended.
    #[must_use]
    pub fn new(root: u32, process: u32, servers: &[u32]) -> Option<Self> {
        let procfs = Path::new("/proc");
        let directory = procfs.join(process.to_string());
        let uids = Status::read(&directory).uids;
        let servers: Option<BTreeSet<ProcessKey>> =
            servers.iter().map(|pid| key(procfs, *pid)).collect();
        Some(Self {
            look: Look::below(procfs.to_owned(), Kept::nowhere()),
            job: WatchedJob {
                job: Job::Tree(key(procfs, root)?),
                uid: uids.known().map(|uids| uids.real),
                share: Share::Unknown,
                processes: [key(procfs, process)?].into(),
                notebook_servers: servers?,
            },
        })
    }

    /// How others use it now.
    pub fn now(&mut self) -> (Reading<NetworkRole>, Reading<u32>) {
        self.look.forget_namespaces();
        let found = self.look.at(std::slice::from_ref(&self.job)).pop();
        let unknown = || NetworkUse::unknown(&Reading::Failed("not looked at".into()));
        let network = found.map_or_else(unknown, |(_, found)| found.network);
        (network.role, network.clients)
    }
}

fn key(root: &Path, pid: u32) -> Option<ProcessKey> {
    let stat = Stat::read(&root.join(pid.to_string())).ok()?;
    Some(ProcessKey {
        pid,
        start_ticks: stat.start_ticks,
    })
}

fn look(root: &Path, pids: &[u32]) -> Vec<Found> {
    let keys = pids.iter().filter_map(|pid| key(root, *pid));
    let jobs: Vec<WatchedJob> = keys
        .map(|key| WatchedJob {
            job: Job::Tree(key),
            uid: None,
            share: Share::Unknown,
            processes: [key].into(),
            notebook_servers: BTreeSet::new(),
        })
        .collect();
    let found = Look::below(PathBuf::from(root), Kept::nowhere()).at(&jobs);
    found.into_iter().map(|(_, found)| found).collect()
}
