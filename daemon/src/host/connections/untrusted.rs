//! The list of sockets as fuzzing calls its parser, and what must hold whatever it
//! is.

use super::table::Table;

/// `/proc/PID/net/tcp`.
pub fn sockets(bytes: &[u8]) {
    let Ok(table) = Table::read(bytes) else {
        return;
    };
    // Inodes of these very bytes.
    let text = String::from_utf8_lossy(bytes);
    let fields = text.split_ascii_whitespace();
    let inodes: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let listening = table.listening(&inodes);
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let connections = usize::try_from(table.connections(&listening)).expect("64 bits");
    assert!(listening.len() + connections < lines.max(1));
    let mut peers = table.peers(&inodes);
    assert!(peers.all(|peer| peer.ip() == peer.ip().to_canonical()));
    assert!(table.listening(&[]).is_empty() && table.peers(&[0]).next().is_none());
}
