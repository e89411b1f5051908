//! Classifies how others use a job over TCP: as a service, as a notebook, or not at
//! all.
//!
//! A job that listens on a port is a service, unless only the job itself is known to
//! use the port, such as the rendezvous of `torchrun` and the ports of a notebook's
//! kernel. A service without a client may get one at any time, so it is still a
//! service.

use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::{MAX_PORTS, NetworkRole};
use std::collections::BTreeSet;

/// The facts about a listening port of a job, or of the notebook server above a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningPort {
    /// The port.
    pub port: u16,
    /// Whether only processes of the same network namespace can connect.
    pub is_loopback: bool,
    /// Whether the notebook server above the job listens on the port.
    pub is_notebook_server: bool,
    /// Whether a notebook kernel listens on the port.
    pub is_notebook_kernel: bool,
    /// Whether a process of the job, or the notebook server above it, is connected.
    pub has_own_clients: bool,
    /// Whether another process or host was ever seen connected.
    pub had_other_clients: bool,
    /// Whether the notebook server above the job is connected.
    pub has_notebook_server: bool,
    /// Number of connections by others that are open or were open within the last
    /// minute.
    pub other_connections: u32,
    /// Number of connections by processes that may or may not be part of the job.
    pub unresolved: u32,
    /// Number of connections that an unknown process closed within the last minute.
    pub closed: u32,
}

/// How others use a job over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUse {
    /// `None` where it is unknown.
    pub role: Option<NetworkRole>,
    /// Number of connections that are not the job's own, or may not be; `None` where
    /// others cannot connect.
    pub clients: Option<u32>,
}

impl ListeningPort {
    /// Whether only the job itself uses the port; `None` where a client may be another
    /// process. An earlier state is not enough: an engine may send its own first
    /// request to itself.
    const fn is_private(&self, is_kernel: bool) -> Option<bool> {
        // A kernel opens ports that its server connects to when a person needs them, and one
        // for its own threads. Its server may be no known one.
        let is_of_kernel = (is_kernel || self.is_notebook_kernel) && self.is_loopback;
        if self.had_other_clients || !(self.has_own_clients || is_of_kernel) {
            return Some(false);
        }
        // The process behind a closed connection is unknown: on a port with a client of
        // the job's own it may have been any process.
        let is_in_doubt = self.unresolved > 0 || self.closed > 0;
        if is_in_doubt { None } else { Some(true) }
    }

    fn clients(&self) -> u32 {
        let open = self.other_connections.saturating_add(self.unresolved);
        open.saturating_add(self.closed)
    }
}

/// Classifies a job that listens on these ports. With `was_connected_to`, connections
/// were also opened and closed by an unknown process to an unknown port.
#[must_use]
pub fn classify_network_use(ports: &[ListeningPort], was_connected_to: bool) -> NetworkUse {
    // The server stays connected to its kernel as long as both live.
    let is_kernel = ports.iter().any(|it| it.has_notebook_server);
    let (of_server, own): (Vec<ListeningPort>, Vec<ListeningPort>) = ports
        .iter()
        .copied()
        .partition(|it| is_kernel && it.is_notebook_server);
    let is_private = |it: &ListeningPort| it.is_private(is_kernel);
    let is_open = |it: &ListeningPort| is_private(it) == Some(false);
    let open: Vec<ListeningPort> = own.iter().copied().filter(is_open).collect();
    let doubtful = || own.iter().filter(|it| is_private(it).is_none());
    let is_unseen = was_connected_to && !is_kernel && !own.is_empty();
    let used = open.iter().chain(&of_server).chain(doubtful());
    let clients = used.map(ListeningPort::clients);
    let clients = clients.fold(0, u32::saturating_add).max(is_unseen.into());
    let (role, clients) = if !open.is_empty() {
        (
            Some(NetworkRole::Service(lowest_ports(&open))),
            Some(clients),
        )
    } else if is_unseen || doubtful().next().is_some() {
        (None, Some(clients))
    } else if is_kernel {
        let role = NetworkRole::Notebook(lowest_ports(&of_server));
        (Some(role), Some(clients))
    } else {
        (Some(NetworkRole::Private), None)
    };
    NetworkUse { role, clients }
}

fn lowest_ports(ports: &[ListeningPort]) -> Vec<u16> {
    let ports: BTreeSet<u16> = ports.iter().map(|it| it.port).into_set();
    ports.into_iter().take(MAX_PORTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use NetworkRole::{Notebook, Private, Service};

    const PORT: ListeningPort = ListeningPort {
        port: 8000,
        is_loopback: true,
        is_notebook_server: false,
        is_notebook_kernel: false,
        has_own_clients: false,
        had_other_clients: false,
        has_notebook_server: false,
        other_connections: 0,
        unresolved: 0,
        closed: 0,
    };

    /// The classification of these ports, without unseen connections.
    fn used(ports: &[ListeningPort]) -> (Option<NetworkRole>, Option<u32>) {
        let NetworkUse { role, clients } = classify_network_use(ports, false);
        (role, clients)
    }

    #[test]
    fn port_makes_a_service_unless_private() {
        let own = ListeningPort {
            has_own_clients: true,
            ..PORT
        };
        let other_connections = ListeningPort {
            had_other_clients: true,
            ..own
        };
        let service = |clients| (Some(Service(vec![8000])), Some(clients));
        let private = (Some(Private), None);
        let cases: [(&[ListeningPort], _); 7] = [
            (&[], private.clone()),
            (&[PORT], service(0)),
            (&[own], private),
            (&[other_connections], service(0)),
            (
                &[ListeningPort {
                    other_connections: 2,
                    ..other_connections
                }],
                service(2),
            ),
            // A client sent a request and is gone.
            (&[ListeningPort { closed: 3, ..PORT }], service(3)),
            (&[ListeningPort { port: 29500, ..own }, PORT], service(0)),
        ];
        for (ports, expected) in cases {
            assert_eq!(used(ports), expected, "{ports:?}");
        }
    }

    #[test]
    fn doubtful_port_is_unknown() {
        let own = ListeningPort {
            has_own_clients: true,
            ..PORT
        };
        let unresolved = ListeningPort {
            unresolved: 1,
            ..own
        };
        let closed = ListeningPort { closed: 3, ..own };
        for (port, clients) in [(unresolved, 1), (closed, 3)] {
            assert_eq!(used(&[port]), (None, Some(clients)), "{port:?}");
            // Another port, or an earlier client of others, makes the job a service;
            // the clients count.
            let before = ListeningPort {
                had_other_clients: true,
                ..port
            };
            let web = ListeningPort { port: 80, ..PORT };
            let service = |ports| (Some(Service(ports)), Some(clients));
            assert_eq!(used(&[before]), service(vec![8000]));
            assert_eq!(used(&[port, web]), service(vec![80]));
        }
        let unseen = classify_network_use(&[own], true);
        assert_eq!((unseen.role, unseen.clients), (None, Some(1)));
        assert_eq!(classify_network_use(&[], true).role, Some(Private));
    }

    #[test]
    fn kernel_is_used_through_its_server() {
        let shell = ListeningPort {
            port: 49_685,
            has_own_clients: true,
            has_notebook_server: true,
            ..PORT
        };
        let unused = ListeningPort {
            port: 56_765,
            ..PORT
        };
        let server = ListeningPort {
            port: 8888,
            is_loopback: false,
            is_notebook_server: true,
            ..PORT
        };
        let browser = ListeningPort {
            other_connections: 1,
            had_other_clients: true,
            ..server
        };
        let web = ListeningPort {
            port: 7860,
            is_loopback: false,
            ..PORT
        };
        let tunnel = ListeningPort {
            port: 7860,
            had_other_clients: true,
            other_connections: 1,
            ..PORT
        };
        let notebook = |clients| (Some(Notebook(vec![8888])), Some(clients));
        let service = |ports, clients| (Some(Service(ports)), Some(clients));
        let cases: [(&[ListeningPort], _); 6] = [
            (&[shell, unused, server], notebook(0)),
            (&[shell, unused, browser], notebook(1)),
            // A port that a cell opens to others is a service.
            (&[shell, unused, server, web], service(vec![7860], 0)),
            (&[shell, unused, browser, tunnel], service(vec![7860], 2)),
            // A server without a connection to this job does not belong to a kernel.
            (&[server], service(vec![8888], 0)),
            (&[server, unused], service(vec![8888, 56_765], 0)),
        ];
        for (ports, expected) in cases {
            assert_eq!(used(ports), expected, "{ports:?}");
        }
    }

    #[test]
    fn kernel_of_an_unknown_launcher_is_private() {
        let unused = ListeningPort {
            is_notebook_kernel: true,
            ..PORT
        };
        let launcher = ListeningPort {
            has_own_clients: true,
            ..unused
        };
        let stranger = ListeningPort {
            had_other_clients: true,
            other_connections: 1,
            ..unused
        };
        let web = ListeningPort {
            is_loopback: false,
            ..unused
        };
        let api = ListeningPort { port: 80, ..PORT };
        let service = |port, clients| (Some(Service(vec![port])), Some(clients));
        let cases: [(&[ListeningPort], _); 5] = [
            (&[launcher, unused], (Some(Private), None)),
            // A server that starts kernels for others.
            (&[launcher, unused, api], service(80, 0)),
            (&[launcher, stranger], service(8000, 1)),
            (&[launcher, web], service(8000, 0)),
            (&[PORT], service(8000, 0)),
        ];
        for (ports, expected) in cases {
            assert_eq!(used(ports), expected, "{ports:?}");
        }
        let closed = ListeningPort {
            closed: 1,
            ..unused
        };
        assert_eq!(used(&[closed]), (None, Some(1)));
    }

    #[test]
    fn lowest_ports_are_listed() {
        let many: Vec<ListeningPort> = (1..=40)
            .rev()
            .map(|port| ListeningPort { port, ..PORT })
            .collect();
        let (role, _) = used(&many);
        assert_eq!(role, Some(Service((1..=16).collect())));
    }
}
