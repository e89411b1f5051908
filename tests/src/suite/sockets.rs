//! What the kernel tells of true sockets of both families is read as what they are.

use gpukilld::sockets::of;
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

    /// With whom the client has connected.
    fn server_end(&self) -> SocketAddr {
        far_end(&self.client)
    }

    /// Who has connected to the server.
    fn client_end(&self) -> SocketAddr {
        far_end(&self.accepted)
    }
}

/// IPv4 as what it is.
fn far_end(stream: &TcpStream) -> SocketAddr {
    let peer = stream.peer_addr().unwrap();
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

#[test]
fn a_process_is_told_where_it_listens_and_with_whom_it_has_connected() {
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
        let (port, made, accepted) = (pair.port(), pair.server_end(), pair.client_end());
        assert!(peers.contains(&made), "{made}: {peers:?}");
        // Whoever connects chooses the port that he comes from: that is no sign of whom
        // he connects to.
        assert!(!peers.contains(&accepted), "{accepted}: {peers:?}");
        assert_eq!((made.ip(), accepted.ip()), (connects, connects));
        drop(pair);
        let (ports, peers) = told();
        assert!(!ports.contains(&port) && !peers.contains(&made));
    }
}
