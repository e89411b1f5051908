//! How others use one job: which ports its processes and its notebook server listen on, and
//! who is connected there.

use super::NetworkUse;
use super::look::{Holder, Namespace};
use super::table::{Broken, Connection, SocketTable};
use gpukill_policy::network::{ListeningPort, network_use};
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is remembered of a job from one look to the next.
#[derive(Default)]
pub(super) struct JobHistory {
    /// Its processes that hold no GPU.
    pub(super) members: Vec<Holder>,
    /// When they were last looked for.
    pub(super) surveyed_at: Option<Instant>,
    /// The listening sockets of its namespaces when they were last looked for: all of them
    /// are known to be the job's or not.
    attributed: BTreeSet<u64>,
    /// Sockets of clients that are no part of the job.
    others: BTreeSet<u64>,
    /// How many connections had been made in namespaces of its own.
    accepted: BTreeMap<PathBuf, u64>,
}

/// The processes of a job whose sockets are read at each look.
#[derive(Default)]
pub(super) struct Holders {
    /// Those that hold a GPU.
    pub(super) own: Vec<Holder>,
    /// The notebook servers above them.
    pub(super) servers: Vec<Holder>,
}

/// What came of one look.
#[derive(Default)]
pub(super) struct Evaluation {
    ports: Vec<ListeningPort>,
    /// All sockets that listen in the namespaces of the job.
    listeners: BTreeSet<u64>,
    /// Those of them that are not known to be the job's or not.
    is_unattributed: bool,
    /// Clients in these namespaces that are not known to be part of the job or not.
    unresolved: BTreeSet<u64>,
    /// Clients that are no part of it.
    others: BTreeSet<u64>,
    /// A connection was made to it since the last look, in a namespace of its own.
    was_connected_to: bool,
}

/// Whose client a connection is.
enum Client {
    /// The job's own.
    Own,
    /// The notebook server's.
    Server,
    /// No part of the job.
    Other,
    /// In this namespace; it may be part of the job.
    Unresolved(u64),
    /// It is closed.
    Closed,
}

/// The inodes of the sockets of a job.
struct Inodes {
    own: BTreeSet<u64>,
    servers: BTreeSet<u64>,
}

impl Evaluation {
    /// Whether the processes of the job must be looked for again.
    pub(super) fn needs_survey(&self) -> bool {
        self.is_unattributed || !self.unresolved.is_empty()
    }

    pub(super) fn network_use(&self) -> NetworkUse {
        let used = network_use(&self.ports, self.was_connected_to);
        let in_doubt = || Reading::Failed("a client of it may be another's".into());
        NetworkUse {
            role: used.role.map_or_else(in_doubt, Reading::Value),
            clients: used.clients.map_or(Reading::Unsupported, Reading::Value),
        }
    }
}

impl JobHistory {
    /// All processes of the job were looked at: its clients that are not among them, and
    /// the listening sockets that none of them has, are others'.
    pub(super) fn are_others(&mut self, evaluation: &Evaluation) {
        self.others.extend(&evaluation.unresolved);
        self.attributed.clone_from(&evaluation.listeners);
    }

    /// Notes in `had_others` to which of its sockets others are connected.
    ///
    /// # Errors
    /// When the sockets of a namespace in which a process of it has some cannot be told.
    pub(super) fn evaluate<'n>(
        &mut self,
        holders: &Holders,
        had_others: &mut BTreeSet<u64>,
        namespace: &impl Fn(&Path) -> Option<&'n Namespace>,
    ) -> Result<Evaluation, Broken> {
        let own = || holders.own.iter().chain(&self.members);
        let sockets = |holder: &Holder| holder.sockets.clone();
        let inodes = Inodes {
            own: own().flat_map(sockets).collect(),
            servers: holders.servers.iter().flat_map(sockets).collect(),
        };
        // Of each, whether a process of the job has sockets there.
        let mut names: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for holder in own().chain(&holders.servers) {
            if let Some(name) = &holder.namespace {
                *names.entry(name.clone()).or_default() |= !holder.sockets.is_empty();
            }
        }
        let mut evaluation = Evaluation::default();
        for (name, has_sockets) in names {
            let Some(namespace) = namespace(&name) else {
                continue;
            };
            let mut there = own()
                .chain(&holders.servers)
                .filter(|it| it.namespace.as_ref() == Some(&name) && !it.sockets.is_empty());
            match &namespace.table {
                Ok(table) if there.any(|it| table.may_lack_those_of(&it.directory)) => {
                    return Err(Broken::TooLong);
                }
                Ok(table) => self.look_at(table, &inodes, had_others, &mut evaluation),
                Err(broken) if has_sockets => return Err(broken.clone()),
                Err(_) => {}
            }
            if let Some(accepted) = namespace.accepted {
                let before = self.accepted.insert(name, accepted);
                evaluation.was_connected_to |= before.is_some_and(|before| before < accepted);
            }
        }
        let is_known = |inode: &u64| self.attributed.contains(inode);
        evaluation.is_unattributed = !evaluation.listeners.iter().all(is_known);
        // What is closed by now is nobody's.
        self.others.retain(|it| evaluation.others.contains(it));
        Ok(evaluation)
    }

    /// Adds the ports of the job in one namespace.
    fn look_at(
        &self,
        table: &SocketTable,
        inodes: &Inodes,
        had_others: &mut BTreeSet<u64>,
        evaluation: &mut Evaluation,
    ) {
        for inode in table.listeners() {
            evaluation.listeners.insert(inode);
            let is_notebook_server = inodes.servers.contains(&inode);
            if !is_notebook_server && !inodes.own.contains(&inode) {
                continue;
            }
            let Some(local) = table.listening(inode) else {
                continue;
            };
            let mut port = ListeningPort {
                port: local.port(),
                is_loopback: local.ip().is_loopback(),
                is_notebook_server,
                has_own_clients: false,
                has_had_others: had_others.contains(&inode),
                has_notebook_server: false,
                others: 0,
                unresolved: 0,
                closed: 0,
            };
            for connection in table.connections_to(local) {
                match self.client(table, connection, inodes) {
                    Client::Own => port.has_own_clients = true,
                    Client::Server => {
                        port.has_own_clients = true;
                        port.has_notebook_server |= !is_notebook_server;
                    }
                    Client::Other => {
                        port.others = port.others.saturating_add(1);
                        port.has_had_others = true;
                        evaluation.others.extend(table.client_of(connection));
                    }
                    Client::Unresolved(client) => {
                        port.unresolved = port.unresolved.saturating_add(1);
                        evaluation.unresolved.insert(client);
                    }
                    Client::Closed => port.closed = port.closed.saturating_add(1),
                }
            }
            if port.has_had_others {
                had_others.insert(inode);
            }
            evaluation.ports.push(port);
        }
    }

    fn client(&self, table: &SocketTable, connection: &Connection, inodes: &Inodes) -> Client {
        let is_elsewhere = !table.is_of_this_box(connection.peer);
        match table.client_of(connection) {
            Some(inode) if inodes.servers.contains(&inode) => Client::Server,
            Some(inode) if inodes.own.contains(&inode) => Client::Own,
            Some(inode) if self.others.contains(&inode) => Client::Other,
            Some(inode) => Client::Unresolved(inode),
            None if is_elsewhere => Client::Other,
            None => Client::Closed,
        }
    }
}
