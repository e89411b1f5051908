//! Reads real sockets of both address families from the kernel's tables.

use gpukilld::sockets::ports_and_peers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

/// A listener, and both ends of a connection to it.
struct TcpPair {
    server: TcpListener,
    client: TcpStream,
    accepted: TcpStream,
}

impl TcpPair {
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

    /// The address to which the client has connected.
    fn server_end(&self) -> SocketAddr {
        peer_address(&self.client)
    }

    /// The address from which the server was reached.
    fn client_end(&self) -> SocketAddr {
        peer_address(&self.accepted)
    }
}

/// The peer address of a stream; an IPv4-mapped address becomes IPv4.
fn peer_address(stream: &TcpStream) -> SocketAddr {
    let peer = stream.peer_addr().unwrap();
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

#[test]
fn listening_ports_and_peers_are_reported() {
    let (four, six) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    // A listener on all IPv6 addresses accepts IPv4 connections too.
    let cases = [
        (four, four),
        (six, six),
        (Ipv6Addr::UNSPECIFIED.into(), four),
    ];
    for (listens, connects) in cases {
        let Some(pair) = TcpPair::new(listens, connects) else {
            eprintln!("skipped: no connection from {connects} to {listens}");
            continue;
        };
        // This test process itself, in which other tests have sockets too.
        let read = || ports_and_peers(Path::new("/proc"), std::process::id()).unwrap();
        let (ports, peers) = read();
        assert!(ports.contains(&pair.port()), "{ports:?}");
        let (port, made, accepted) = (pair.port(), pair.server_end(), pair.client_end());
        assert!(peers.contains(&made), "{made}: {peers:?}");
        // The client chooses its own port, so the address of an accepted connection
        // does not show the addresses that this process connects to.
        assert!(!peers.contains(&accepted), "{accepted}: {peers:?}");
        assert_eq!((made.ip(), accepted.ip()), (connects, connects));
        drop(pair);
        let (ports, peers) = read();
        assert!(!ports.contains(&port) && !peers.contains(&made));
    }
}
