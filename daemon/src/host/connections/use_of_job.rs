//! How others use one job: which ports its processes and its notebook server listen on, and
//! who is connected there.

use super::NetworkUse;
use super::budget::Share;
use super::look::Holder;
use super::namespaces::Namespace;
use super::serving::Serving;
use super::table::{Broken, Connection, SocketTable};
use core::net::SocketAddr;
use gpukill_policy::network::{ListeningPort, network_use};
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Of as many namespaces it is remembered how many connections were made, besides those in
/// which its processes are.
const NAMESPACES: usize = 1_024;

/// What is remembered of a job from one look to the next.
#[derive(Default)]
pub(super) struct JobHistory {
    /// Whose it is.
    pub(super) share: Option<Share>,
    /// Its processes that hold no GPU.
    members: Vec<Holder>,
    /// How many sockets these have, each process for itself.
    pub(super) sockets: usize,
    /// Since when they are known; `None` where they are not.
    pub(super) surveyed_at: Option<Instant>,
    /// Why they are not.
    pub(super) broken: Option<Reading<()>>,
    /// The listening sockets of its namespaces when they were last looked for: all of them
    /// are known to be the job's or not.
    attributed: BTreeMap<PathBuf, Arc<BTreeSet<u64>>>,
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
    listeners: BTreeMap<PathBuf, Arc<BTreeSet<u64>>>,
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

/// Which sockets others have been connected to, and whose the job is.
pub(super) struct HadOthers<'a> {
    pub(super) serving: &'a mut Serving,
    pub(super) share: &'a Arc<Share>,
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
    /// Its processes without a GPU are these; or they are not known, and nothing is kept of
    /// them.
    pub(super) fn was_surveyed(&mut self, members: Result<Vec<Holder>, Reading<()>>) {
        (self.members, self.surveyed_at, self.broken) = match members {
            Ok(members) => (members, Some(Instant::now()), None),
            Err(why) => (Vec::new(), None, Some(why)),
        };
        let sockets = self.members.iter().map(|member| member.sockets.len());
        self.sockets = sockets.sum();
    }

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
        had_others: &mut HadOthers<'_>,
        namespace: &impl Fn(&Path) -> Option<&'n Namespace>,
    ) -> Result<Evaluation, Broken> {
        let own = || holders.own.iter().chain(&self.members);
        let servers = holders.servers.iter();
        let inodes = Inodes {
            own: own().flat_map(|it| &it.sockets).copied().collect(),
            servers: servers.flat_map(|it| &it.sockets).copied().collect(),
        };
        // Of each, whether a process of the job has sockets there.
        let mut names: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for holder in own().chain(&holders.servers) {
            if let Some(name) = &holder.namespace {
                *names.entry(name.clone()).or_default() |= !holder.sockets.is_empty();
            }
        }
        if self.accepted.len() > NAMESPACES {
            self.accepted.retain(|name, _| names.contains_key(name));
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
                Ok(table) => {
                    let listeners = Arc::clone(table.listeners());
                    evaluation.listeners.insert(name.clone(), listeners);
                    self.look_at(table, &inodes, had_others, &mut evaluation);
                }
                Err(broken) if has_sockets => return Err(broken.clone()),
                Err(_) => {}
            }
            if let Some(accepted) = namespace.accepted {
                let before = self.accepted.insert(name, accepted);
                evaluation.was_connected_to |= before.is_some_and(|before| before < accepted);
            }
        }
        for (name, listeners) in &evaluation.listeners {
            match self.attributed.get_mut(name) {
                // Of many jobs in one namespace all remember the same set.
                Some(known) if listeners.is_subset(known) => known.clone_from(listeners),
                Some(_) | None => evaluation.is_unattributed |= !listeners.is_empty(),
            }
        }
        // What is closed by now is nobody's.
        self.others.retain(|it| evaluation.others.contains(it));
        Ok(evaluation)
    }

    /// Adds the ports of the job in one namespace.
    fn look_at(
        &self,
        table: &SocketTable,
        inodes: &Inodes,
        had_others: &mut HadOthers<'_>,
        evaluation: &mut Evaluation,
    ) {
        // Many sockets may listen at one address (SO_REUSEPORT), and are one port.
        let mut ports: BTreeMap<(SocketAddr, bool), Vec<u64>> = BTreeMap::new();
        for inode in inodes.own.union(&inodes.servers) {
            if let Some(local) = table.listening(*inode) {
                let is_notebook_server = inodes.servers.contains(inode);
                let same = ports.entry((local, is_notebook_server)).or_default();
                same.push(*inode);
            }
        }
        for ((local, is_notebook_server), listeners) in ports {
            let has_had_others = |inode: &u64| had_others.serving.contains(*inode);
            let mut port = ListeningPort {
                port: local.port(),
                is_loopback: local.ip().is_loopback(),
                is_notebook_server,
                has_own_clients: false,
                has_had_others: listeners.iter().any(has_had_others),
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
                for inode in listeners {
                    had_others.serving.insert(inode, had_others.share);
                }
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
