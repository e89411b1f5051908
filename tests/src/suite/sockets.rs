//! What the kernel tells of true sockets of both families is read as what they are.

use gpukilld::sockets::of;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

/// A listener, and both ends of a connection to it.
struct Pair {
    server: TcpListener,
    client: TcpStream,
    accepted: TcpStream,
}

impl Pair {
    /// `None` where this machine has no such address.
    fn new(listens: IpAddr, connects: IpAddr) -> Option<Self> {
        let server = TcpListener::bind((listens, 0)).ok()?;
        let port = server.local_addr().unwrap().port();
        let client = TcpStream::connect((connects, port)).ok()?;
        let accepted = server.accept().unwrap().0;
        Some(Self {
            server,
            client,
            accepted,
        })
    }

    fn port(&self) -> u16 {
        self.server.local_addr().unwrap().port()
    }

    /// The far ends of both, IPv4 as what it is.
    fn peers(&self) -> BTreeSet<SocketAddr> {
        let ends = [&self.client, &self.accepted].into_iter();
        ends.map(|end| end.peer_addr().unwrap())
            .map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()))
            .collect()
    }
}

#[test]
fn a_process_is_told_where_it_listens_and_with_whom_it_is_connected() {
    let (four, six) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    // What listens on all addresses of IPv6 takes connections of IPv4 too.
    let cases = [
        (four, four),
        (six, six),
        (Ipv6Addr::UNSPECIFIED.into(), four),
    ];
    for (listens, connects) in cases {
        let Some(pair) = Pair::new(listens, connects) else {
            eprintln!("skipped: no connection from {connects} to {listens}");
            continue;
        };
        // This very process, in which other tests have sockets too.
        let told = || of(Path::new("/proc"), std::process::id()).unwrap();
        let (ports, peers) = told();
        assert!(ports.contains(&pair.port()), "{ports:?}");
        assert!(peers.is_superset(&pair.peers()), "{peers:?}");
        assert!(pair.peers().iter().all(|peer| peer.ip() == connects));
        let (port, ends) = (pair.port(), pair.peers());
        drop(pair);
        let (ports, peers) = told();
        assert!(!ports.contains(&port) && peers.is_disjoint(&ends));
    }
}
