//! The network use of one job: the ports on which its processes and its notebook server listen, and
//! the clients connected there.

use super::NetworkUse;
use super::budget::BudgetOwner;
use super::namespaces::NetworkNamespace;
use super::scan::OpenSockets;
use super::served::ServedSockets;
use super::table::{Connection, SocketListError, SocketTable};
use core::net::SocketAddr;
use gpukill_policy::network::{ListeningPort, classify_network_use};
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How many namespaces' connection counts are remembered, apart from the namespaces of its current
/// processes.
const MAX_NAMESPACES: usize = 1_024;

/// The state of a job between scans.
#[derive(Default)]
pub(super) struct JobHistory {
    pub(super) owner: Option<BudgetOwner>,
    /// Its processes that hold no GPU.
    members: Vec<OpenSockets>,
    /// The number of their sockets, counted per process.
    pub(super) sockets: usize,
    /// When the members were found; `None` where they are unknown.
    pub(super) surveyed_at: Option<Instant>,
    /// Why they are unknown.
    pub(super) unknown_reason: Option<Reading<()>>,
    /// The listening sockets of its namespaces at the last search: each is known to be the job's or
    /// not.
    attributed: BTreeMap<PathBuf, Arc<BTreeSet<u64>>>,
    /// Client sockets outside the job.
    external_clients: BTreeSet<u64>,
    /// How many connections had been accepted in its own namespaces.
    accepted: BTreeMap<PathBuf, u64>,
}

/// The processes of a job that have their sockets read at each scan.
#[derive(Default)]
pub(super) struct JobSockets {
    /// Processes that hold a GPU.
    pub(super) own: Vec<OpenSockets>,
    /// The notebook servers above them.
    pub(super) servers: Vec<OpenSockets>,
    /// The sockets of those of `own` that run a notebook kernel.
    pub(super) kernel_sockets: BTreeSet<u64>,
}

/// The result of one scan.
#[derive(Default)]
pub(super) struct JobUse {
    ports: Vec<ListeningPort>,
    /// All listening sockets in the namespaces of the job.
    listeners: BTreeMap<PathBuf, Arc<BTreeSet<u64>>>,
    /// Whether one of them is not known to be the job's or not.
    has_unattributed: bool,
    /// Clients in these namespaces that may belong to the job.
    unresolved: BTreeSet<u64>,
    /// Clients outside the job.
    external_clients: BTreeSet<u64>,
    /// Whether a connection was accepted since the last scan, in a namespace of its own.
    had_new_connections: bool,
}

/// The kind of a connection's client.
enum ClientKind {
    /// A process of the job.
    Own,
    /// The notebook server.
    Server,
    /// Outside the job.
    External,
    /// A process in this namespace, which may belong to the job.
    Unresolved(u64),
    /// The connection is closed.
    Closed,
}

struct JobInodes<'a> {
    own: BTreeSet<u64>,
    servers: BTreeSet<u64>,
    kernels: &'a BTreeSet<u64>,
}

/// Records sockets that external clients were connected to, with the owner of the job.
pub(super) struct ServedRecorder<'a> {
    pub(super) served: &'a mut ServedSockets,
    pub(super) owner: &'a Arc<BudgetOwner>,
}

impl JobUse {
    /// Whether the processes of the job must be searched again.
    pub(super) fn needs_survey(&self) -> bool {
        self.has_unattributed || !self.unresolved.is_empty()
    }

    pub(super) fn network_use(&self) -> NetworkUse {
        let used = classify_network_use(&self.ports, self.had_new_connections);
        let in_doubt = || Reading::Failed("one of its clients may be external".into());
        NetworkUse {
            role: used.role.map_or_else(in_doubt, Reading::Value),
            clients: used.clients.map_or(Reading::Unsupported, Reading::Value),
        }
    }
}

impl JobHistory {
    /// Sets the job's processes without a GPU, or the reason why they are unknown; then none are
    /// kept.
    pub(super) fn set_survey(&mut self, members: Result<Vec<OpenSockets>, Reading<()>>) {
        (self.members, self.surveyed_at, self.unknown_reason) = match members {
            Ok(members) => (members, Some(Instant::now()), None),
            Err(why) => (Vec::new(), None, Some(why)),
        };
        let sockets = self.members.iter().map(|member| member.sockets.len());
        self.sockets = sockets.sum();
    }

    /// All processes of the job were read: clients that are not among them, and listening sockets
    /// that none of them has, are external.
    pub(super) fn mark_external(&mut self, evaluation: &JobUse) {
        self.external_clients.extend(&evaluation.unresolved);
        self.attributed.clone_from(&evaluation.listeners);
    }

    /// Evaluates the job, and records with `recorder` its sockets with external clients.
    ///
    /// # Errors
    /// When the sockets of a namespace are unknown in which a process of the job has some.
    pub(super) fn evaluate<'n>(
        &mut self,
        holders: &JobSockets,
        recorder: &mut ServedRecorder<'_>,
        namespace: &impl Fn(&Path) -> Option<&'n NetworkNamespace>,
    ) -> Result<JobUse, SocketListError> {
        let own = || holders.own.iter().chain(&self.members);
        let servers = holders.servers.iter();
        let inodes = JobInodes {
            own: own().flat_map(|it| &it.sockets).copied().into_set(),
            servers: servers.flat_map(|it| &it.sockets).copied().into_set(),
            kernels: &holders.kernel_sockets,
        };
        // For each, whether a process of the job has sockets there.
        let mut names: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for holder in own().chain(&holders.servers) {
            if let Some(name) = &holder.namespace {
                *names.entry(name.clone()).or_default() |= !holder.sockets.is_empty();
            }
        }
        if self.accepted.len() > MAX_NAMESPACES {
            self.accepted
                .retain_entries(|name, _| names.contains_key(name));
        }
        let mut evaluation = JobUse::default();
        for (name, has_sockets) in names {
            let Some(namespace) = namespace(&name) else {
                continue;
            };
            let mut namespace_processes = own()
                .chain(&holders.servers)
                .filter(|it| it.namespace.as_ref() == Some(&name) && !it.sockets.is_empty());
            match &namespace.table {
                Ok(table)
                    if namespace_processes.any(|it| table.may_lack_sockets_of(&it.directory)) =>
                {
                    return Err(SocketListError::TooLong);
                }
                Ok(table) => {
                    let listeners = Arc::clone(table.listeners());
                    evaluation.listeners.insert(name.clone(), listeners);
                    self.add_ports(table, &inodes, recorder, &mut evaluation);
                }
                Err(error) if has_sockets => return Err(error.clone()),
                Err(_) => {}
            }
            if let Some(accepted) = namespace.accepted {
                let before = self.accepted.insert(name, accepted);
                evaluation.had_new_connections |= before.is_some_and(|before| before < accepted);
            }
        }
        for (name, listeners) in &evaluation.listeners {
            match self.attributed.get_mut(name) {
                // Jobs in one namespace share the same set.
                Some(known) if listeners.is_subset(known) => known.clone_from(listeners),
                Some(_) | None => evaluation.has_unattributed |= !listeners.is_empty(),
            }
        }
        // Closed sockets are dropped.
        self.external_clients
            .retain(|it| evaluation.external_clients.contains(it));
        Ok(evaluation)
    }

    fn add_ports(
        &self,
        table: &SocketTable,
        inodes: &JobInodes<'_>,
        recorder: &mut ServedRecorder<'_>,
        evaluation: &mut JobUse,
    ) {
        // Many sockets may listen at one address (SO_REUSEPORT); they are one port.
        let mut ports: BTreeMap<(SocketAddr, bool), Vec<u64>> = BTreeMap::new();
        for inode in inodes.own.union(&inodes.servers) {
            if let Some(local) = table.listening_address(*inode) {
                let is_notebook_server = inodes.servers.contains(inode);
                let same = ports.entry((local, is_notebook_server)).or_default();
                same.push(*inode);
            }
        }
        for ((local, is_notebook_server), listeners) in ports {
            let had_external_clients = |inode: &u64| recorder.served.contains(*inode);
            let mut port = ListeningPort {
                port: local.port(),
                is_loopback: local.ip().is_loopback(),
                is_notebook_server,
                is_notebook_kernel: listeners.iter().all(|it| inodes.kernels.contains(it)),
                has_own_clients: false,
                had_other_clients: listeners.iter().any(had_external_clients),
                has_notebook_server: false,
                other_connections: 0,
                unresolved: 0,
                closed: 0,
            };
            for connection in table.connections_to(local) {
                match self.classify_client(table, connection, inodes) {
                    ClientKind::Own => port.has_own_clients = true,
                    ClientKind::Server => {
                        port.has_own_clients = true;
                        port.has_notebook_server |= !is_notebook_server;
                    }
                    ClientKind::External => {
                        port.other_connections = port.other_connections.saturating_add(1);
                        port.had_other_clients = true;
                        evaluation
                            .external_clients
                            .extend(table.client_inode(connection));
                    }
                    ClientKind::Unresolved(client) => {
                        port.unresolved = port.unresolved.saturating_add(1);
                        evaluation.unresolved.insert(client);
                    }
                    ClientKind::Closed => port.closed = port.closed.saturating_add(1),
                }
            }
            if port.had_other_clients {
                for inode in listeners {
                    recorder.served.insert(inode, recorder.owner);
                }
            }
            evaluation.ports.push(port);
        }
    }

    fn classify_client(
        &self,
        table: &SocketTable,
        connection: &Connection,
        inodes: &JobInodes<'_>,
    ) -> ClientKind {
        let is_elsewhere = !table.is_local(connection.peer);
        match table.client_inode(connection) {
            Some(inode) if inodes.servers.contains(&inode) => ClientKind::Server,
            Some(inode) if inodes.own.contains(&inode) => ClientKind::Own,
            Some(inode) if self.external_clients.contains(&inode) => ClientKind::External,
            Some(inode) => ClientKind::Unresolved(inode),
            None if is_elsewhere => ClientKind::External,
            None => ClientKind::Closed,
        }
    }
}
