//! The parser of socket lists for fuzzing, and what must hold for any input.

use super::addresses::LocalAddresses;
use super::table::SocketTable;

/// `/proc/PID/net/tcp`.
pub fn sockets(bytes: &[u8]) {
    // For any addresses: the parser returns.
    let _ = LocalAddresses::read(bytes, Some(bytes));
    let Ok(table) = SocketTable::read(bytes, None, LocalAddresses::default()) else {
        return;
    };
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let listeners: Vec<u64> = table.listeners().iter().copied().collect();
    assert!(listeners.len() < lines.max(1));
    for inode in &listeners {
        let local = table.listening_address(*inode).expect("it listens");
        assert_eq!(local.ip(), local.ip().to_canonical());
        // Both ends of a connection may have been closed, each with a line of its own.
        assert!(table.connections_to(local).count() < 2 * lines.max(1));
    }
    // Inodes from these bytes.
    let text = String::from_utf8_lossy(bytes);
    let fields = text.split_ascii_whitespace();
    let inodes: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let mut peers = table.peers(&inodes);
    assert!(peers.all(|peer| peer.ip() == peer.ip().to_canonical()));
    assert!(table.peers(&[0]).next().is_none());
}
