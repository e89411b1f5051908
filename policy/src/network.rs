//! How others use a job over TCP: is it a service, a notebook, or neither?
//!
//! A job that listens on a port is a service, unless the port is known to be used by the
//! job alone, such as the rendezvous of `torchrun` and the ports of a notebook's kernel. A
//! service that has no client at the moment may have one in the next: it is still a
//! service.

use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::{MAX_PORTS, NetworkRole};
use std::collections::BTreeSet;

/// What is known of a port on which a process of a job listens, or the notebook server
/// above a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningPort {
    /// The port.
    pub port: u16,
    /// Whether only processes of the same network namespace can connect to it.
    pub is_loopback: bool,
    /// Whether the notebook server above the job listens on it.
    pub is_notebook_server: bool,
    /// Whether a process of the job, or the notebook server above it, is connected now.
    pub has_own_clients: bool,
    /// Whether another process or host has ever been seen connected.
    pub has_had_others: bool,
    /// Whether the notebook server above the job is connected now.
    pub has_notebook_server: bool,
    /// How many connections of others there are, or were within the last minute.
    pub others: u32,
    /// How many connections there are of processes that may be part of the job or not.
    pub unresolved: u32,
    /// How many connections were closed within the last minute, and by which process is
    /// not known.
    pub closed: u32,
}

/// How others use a job over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUse {
    /// `None` where it is not known.
    pub role: Option<NetworkRole>,
    /// How many connections are not its own, or may not be; `None` where others cannot
    /// connect to it.
    pub clients: Option<u32>,
}

impl ListeningPort {
    /// Whether only the job itself uses it; `None` where a client may be another's. That
    /// was once so is not enough: an engine may send its own first request to itself.
    const fn is_private(&self, is_kernel: bool) -> Option<bool> {
        // A kernel opens ports that its server connects to when somebody needs them.
        let is_of_kernel = is_kernel && self.is_loopback;
        if self.has_had_others || !(self.has_own_clients || is_of_kernel) {
            return Some(false);
        }
        // Whoever made a connection that is closed is not known: on a port with a client of
        // the job's own it may have been anybody.
        let is_in_doubt = self.unresolved > 0 || self.closed > 0;
        if is_in_doubt { None } else { Some(true) }
    }

    fn clients(&self) -> u32 {
        let open = self.others.saturating_add(self.unresolved);
        open.saturating_add(self.closed)
    }
}

/// How others use a job that listens on these ports. Connections may also have been made
/// and closed, by which process and to which port is not known (`was_connected_to`).
#[must_use]
pub fn network_use(ports: &[ListeningPort], was_connected_to: bool) -> NetworkUse {
    // Its server is connected to a kernel as long as both live.
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
        (Some(NetworkRole::Service(lowest(&open))), Some(clients))
    } else if is_unseen || doubtful().next().is_some() {
        (None, Some(clients))
    } else if is_kernel {
        let role = NetworkRole::Notebook(lowest(&of_server));
        (Some(role), Some(clients))
    } else {
        (Some(NetworkRole::Private), None)
    };
    NetworkUse { role, clients }
}

fn lowest(ports: &[ListeningPort]) -> Vec<u16> {
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
        has_own_clients: false,
        has_had_others: false,
        has_notebook_server: false,
        others: 0,
        unresolved: 0,
        closed: 0,
    };

    /// What is said of these ports, to which nobody connected unseen.
    fn used(ports: &[ListeningPort]) -> (Option<NetworkRole>, Option<u32>) {
        let NetworkUse { role, clients } = network_use(ports, false);
        (role, clients)
    }

    #[test]
    fn a_port_makes_a_service_unless_the_job_alone_uses_it() {
        let own = ListeningPort {
            has_own_clients: true,
            ..PORT
        };
        let others = ListeningPort {
            has_had_others: true,
            ..own
        };
        let service = |clients| (Some(Service(vec![8000])), Some(clients));
        let private = (Some(Private), None);
        let cases: [(&[ListeningPort], _); 7] = [
            (&[], private.clone()),
            (&[PORT], service(0)),
            (&[own], private),
            (&[others], service(0)),
            (
                &[ListeningPort {
                    others: 2,
                    ..others
                }],
                service(2),
            ),
            // Somebody asked, and has gone.
            (&[ListeningPort { closed: 3, ..PORT }], service(3)),
            (&[ListeningPort { port: 29500, ..own }, PORT], service(0)),
        ];
        for (ports, expected) in cases {
            assert_eq!(used(ports), expected, "{ports:?}");
        }
    }

    #[test]
    fn a_port_that_others_may_use_is_neither_private_nor_a_service() {
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
            // Another port, or others before, make it a service; the clients count.
            let before = ListeningPort {
                has_had_others: true,
                ..port
            };
            let web = ListeningPort { port: 80, ..PORT };
            let service = |ports| (Some(Service(ports)), Some(clients));
            assert_eq!(used(&[before]), service(vec![8000]));
            assert_eq!(used(&[port, web]), service(vec![80]));
        }
        let unseen = network_use(&[own], true);
        assert_eq!((unseen.role, unseen.clients), (None, Some(1)));
        assert_eq!(network_use(&[], true).role, Some(Private));
    }

    #[test]
    fn a_kernel_is_used_through_its_server() {
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
            others: 1,
            has_had_others: true,
            ..server
        };
        let web = ListeningPort {
            port: 7860,
            is_loopback: false,
            ..PORT
        };
        let tunnel = ListeningPort {
            port: 7860,
            has_had_others: true,
            others: 1,
            ..PORT
        };
        let notebook = |clients| (Some(Notebook(vec![8888])), Some(clients));
        let service = |ports, clients| (Some(Service(ports)), Some(clients));
        let cases: [(&[ListeningPort], _); 6] = [
            (&[shell, unused, server], notebook(0)),
            (&[shell, unused, browser], notebook(1)),
            // What a cell serves to others is a service.
            (&[shell, unused, server, web], service(vec![7860], 0)),
            (&[shell, unused, browser, tunnel], service(vec![7860], 2)),
            // A server that is connected to nothing here is none of a kernel.
            (&[server], service(vec![8888], 0)),
            (&[server, unused], service(vec![8888, 56_765], 0)),
        ];
        for (ports, expected) in cases {
            assert_eq!(used(ports), expected, "{ports:?}");
        }
    }

    #[test]
    fn of_many_ports_the_lowest_are_listed() {
        let many: Vec<ListeningPort> = (1..=40)
            .rev()
            .map(|port| ListeningPort { port, ..PORT })
            .collect();
        let (role, _) = used(&many);
        assert_eq!(role, Some(Service((1..=16).collect())));
    }
}
