//! The list of sockets as fuzzing calls its parser, and what must hold whatever it
//! is.

use super::addresses::Addresses;
use super::table::SocketTable;

/// `/proc/PID/net/tcp`.
pub fn sockets(bytes: &[u8]) {
    // Whatever they say of addresses: it ends.
    let _ = Addresses::read(bytes, Some(bytes));
    let Ok(table) = SocketTable::read(bytes, None, Addresses::default()) else {
        return;
    };
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let listeners: Vec<u64> = table.listeners().iter().copied().collect();
    assert!(listeners.len() < lines.max(1));
    for inode in &listeners {
        let local = table.listening(*inode).expect("it listens");
        assert_eq!(local.ip(), local.ip().to_canonical());
        // Both ends of a connection may have been closed, each with its own line.
        assert!(table.connections_to(local).count() < 2 * lines.max(1));
    }
    // Inodes of these very bytes.
    let text = String::from_utf8_lossy(bytes);
    let fields = text.split_ascii_whitespace();
    let inodes: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let mut peers = table.peers(&inodes);
    assert!(peers.all(|peer| peer.ip() == peer.ip().to_canonical()));
    assert!(table.peers(&[0]).next().is_none());
}
