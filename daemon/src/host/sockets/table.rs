//! The TCP sockets of a network namespace as the kernel lists them (`/proc/PID/net/tcp`, `tcp6`;
//! Documentation/networking/proc_net_tcp.rst).

use super::addresses::LocalAddresses;
use super::collector::{DroppedOwners, LIMITS, SocketCollector};
use crate::host::status::StatusFile;
use crate::procfs::parse_decimal;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use gpukill_policy::access::Uids;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _};
use std::path::Path;
use std::sync::Arc;

/// The kernel pads lines to 149 bytes, and to 176 in `tcp6`; a number that is too long for its
/// column makes a line longer.
const MAX_LINE_BYTES: usize = 512;

/// The relevant states, as in `include/net/tcp_states.h`.
pub(super) const ESTABLISHED: u8 = 1;
pub(super) const LISTEN: u8 = 10;

/// States of a connection that was established and is being closed, or was closed within the last
/// minute: `FIN_WAIT1`, `FIN_WAIT2`, `TIME_WAIT`, `LAST_ACK`, `CLOSING`. Not `CLOSE_WAIT`: a server
/// that never closes a socket stays in it forever.
const CLOSING: [u8; 5] = [4, 5, 6, 9, 11];

/// The relevant sockets of a network namespace, without those of owners with too many.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SocketTable {
    listening_by_inode: BTreeMap<u64, SocketAddr>,
    /// Connections to ports with a listening socket, ordered by port.
    incoming: Vec<Connection>,
    /// The client sockets of connections that were made within this namespace: their inodes, by the
    /// addresses of client and server.
    local_clients: BTreeMap<(SocketAddr, SocketAddr), u64>,
    /// The remote ends of all other connections, by inode.
    outgoing: BTreeMap<u64, SocketAddr>,
    addresses: LocalAddresses,
    /// The inodes of listening sockets. Shared, since each job remembers the ones it knows.
    listeners: Arc<BTreeSet<u64>>,
    /// The ports on which an IPv4 socket listens on all addresses.
    wildcard_v4_ports: BTreeSet<u16>,
    dropped: DroppedOwners,
    /// How many lines were read.
    pub(super) lines: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Connection {
    /// The port of the server; the first field, for the order.
    port: u16,
    /// The address of the server.
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Whether it is established; otherwise it was closed within the last minute.
    pub(super) is_open: bool,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) state: u8,
    /// Its user; 0 where that is no longer known.
    pub(super) uid: u32,
    /// 0 where no process has it open.
    pub(super) inode: u64,
}

/// Why a list is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SocketListError {
    TooLong,
    NotSockets,
    NotAddresses,
    Unreadable(io::ErrorKind),
}

/// The lines of one file, of which at most one is in memory.
struct SocketLines<R> {
    file: R,
    line: Vec<u8>,
}

impl<R: BufRead> SocketLines<R> {
    /// Checks the header that the kernel writes.
    fn open(file: R) -> Result<Self, SocketListError> {
        let line = Vec::with_capacity(MAX_LINE_BYTES);
        let mut lines = Self { file, line };
        match lines.next_line()? {
            Some(line) if line.trim_ascii_start().starts_with(b"sl ") => Ok(lines),
            Some(_) | None => Err(SocketListError::NotSockets),
        }
    }

    /// The socket of the next line; `None` at the end.
    fn next_socket(&mut self) -> Result<Option<Socket>, SocketListError> {
        let line = self.next_line()?;
        let parse = |line| Socket::parse(line).ok_or(SocketListError::NotSockets);
        line.map(parse).transpose()
    }

    fn next_line(&mut self) -> Result<Option<&[u8]>, SocketListError> {
        read_line(&mut self.file, &mut self.line)
    }
}

/// The next line of a file without its end; `None` at the end of the file.
pub(super) fn read_line<'r>(
    file: &mut impl BufRead,
    room: &'r mut Vec<u8>,
) -> Result<Option<&'r [u8]>, SocketListError> {
    room.clear();
    let length = file.take(MAX_LINE_BYTES as u64).read_until(b'\n', room);
    if length.map_err(|error| SocketListError::Unreadable(error.kind()))? == 0 {
        return Ok(None);
    }
    match room.pop() {
        Some(b'\n') => Ok(Some(room)),
        Some(_) | None => Err(SocketListError::NotSockets),
    }
}

impl SocketTable {
    /// Reads the files of both families, line by line, for a namespace with these addresses.
    pub(super) fn read<R: BufRead>(
        four: R,
        six: Option<R>,
        addresses: LocalAddresses,
    ) -> Result<Self, SocketListError> {
        let mut collector = SocketCollector::new(LIMITS);
        let mut four = SocketLines::open(four)?;
        // The kernel lists listening sockets first, so those of both files are known before the
        // rest.
        let first = loop {
            match four.next_socket()? {
                Some(socket) if socket.state == LISTEN => collector.add(socket)?,
                other => break other,
            }
        };
        if let Some(six) = six {
            let mut six = SocketLines::open(six)?;
            while let Some(socket) = six.next_socket()? {
                collector.add(socket)?;
            }
        }
        let mut next = first;
        while let Some(socket) = next {
            collector.add(socket)?;
            next = four.next_socket()?;
        }
        Ok(Self::from_collector(collector, addresses))
    }

    fn from_collector(collector: SocketCollector, addresses: LocalAddresses) -> Self {
        let lines = collector.lines() + addresses.lines;
        let (sockets, ports, left_out) = collector.finish();
        let all = || sockets.iter();
        let is_listening = |socket: &&Socket| socket.state == LISTEN;
        let listening = || all().filter(is_listening);
        let is_wildcard_v4 = |socket: &&Socket| socket.local.ip() == Ipv4Addr::UNSPECIFIED;
        let wildcard_v4 = listening().filter(is_wildcard_v4);
        let mut table = Self {
            wildcard_v4_ports: wildcard_v4.map(|socket| socket.local.port()).into_set(),
            listeners: Arc::new(listening().map(|socket| socket.inode).into_set()),
            listening_by_inode: listening()
                .map(|socket| (socket.inode, socket.local))
                .into_map(),
            addresses,
            dropped: left_out,
            lines,
            ..Self::default()
        };
        for socket in all().filter(|socket| socket.state != LISTEN) {
            let is_open = socket.state == ESTABLISHED;
            // The kernel does not report the initiator of a connection: at a listening port it may
            // be incoming.
            if ports.contains(&socket.local.port()) {
                table.incoming.push(Connection {
                    port: socket.local.port(),
                    local: socket.local,
                    peer: socket.peer,
                    is_open,
                });
            } else if is_open && socket.inode != 0 {
                table.outgoing.insert(socket.inode, socket.peer);
            }
            let is_to_a_server = ports.contains(&socket.peer.port()) && table.is_local(socket.peer);
            if is_to_a_server && is_open && socket.inode != 0 {
                let ends = (socket.local, socket.peer);
                table.local_clients.insert(ends, socket.inode);
            } else if is_to_a_server && !is_open {
                // The side that closes first keeps the closed connection.
                table.incoming.push(Connection {
                    port: socket.peer.port(),
                    local: socket.peer,
                    peer: socket.local,
                    is_open,
                });
            }
        }
        table.incoming.sort_indirect();
        table.incoming.dedup();
        table.incoming.shrink_to_fit();
        table
    }

    /// Whether sockets of the process with this directory may be missing here, because sockets of
    /// its user were dropped.
    pub(super) fn may_lack_sockets_of(&self, directory: &Path) -> bool {
        let has = |uids: &Uids| self.dropped.may_include(*uids);
        !self.dropped.is_empty() && StatusFile::read(directory).uids.known().is_none_or(has)
    }

    pub(super) fn len(&self) -> usize {
        self.listening_by_inode.len()
            + self.incoming.len()
            + self.local_clients.len()
            + self.outgoing.len()
    }

    pub(super) const fn listeners(&self) -> &Arc<BTreeSet<u64>> {
        &self.listeners
    }

    pub(super) fn listening_address(&self, inode: u64) -> Option<SocketAddr> {
        self.listening_by_inode.get(&inode).copied()
    }

    /// The remote ends of the outgoing connections of these sockets.
    pub(super) fn peers(&self, inodes: &[u64]) -> impl Iterator<Item = SocketAddr> {
        inodes
            .iter()
            .filter_map(|inode| self.outgoing.get(inode).copied())
    }

    /// The connections to a socket that listens at this address.
    pub(super) fn connections_to(&self, listener: SocketAddr) -> impl Iterator<Item = &Connection> {
        let (ip, port) = (listener.ip(), listener.port());
        let is_any = ip.is_unspecified();
        // Connections to one port are ordered by address. Where a socket listens on one of many
        // addresses, connections to the others are not visited.
        let first = self.incoming.partition_point(|connection| match is_any {
            true => connection.port < port,
            false => (connection.port, connection.local) < (port, listener),
        });
        let following = self.incoming.get(first..).unwrap_or_default().iter();
        let is_match = move |it: &&Connection| it.port == port && (is_any || it.local == listener);
        // An IPv6 socket on all addresses accepts IPv4, too, where no IPv4 socket does.
        let has_four = self.wildcard_v4_ports.contains(&port);
        following
            .take_while(is_match)
            .filter(move |connection| match ip {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => connection.local.is_ipv4(),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED) => connection.local.is_ipv6() || !has_four,
                IpAddr::V4(_) | IpAddr::V6(_) => true,
            })
    }

    /// Whether this end of a connection is in this namespace.
    pub(super) fn is_local(&self, end: SocketAddr) -> bool {
        self.addresses.contains(end.ip())
    }

    /// The inode of the client's socket, where the client is in this namespace and has the
    /// connection open.
    pub(super) fn client_inode(&self, connection: &Connection) -> Option<u64> {
        let ends = (connection.peer, connection.local);
        self.local_clients.get(&ends).copied()
    }
}

impl Socket {
    /// Parses ten fields, separated by blanks, and ignores the rest: `0: 0100007F:1F90
    /// 00000000:0000 0A 0:0 00:0 0 1000 0 12345`.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace();
        let mut field = || fields.next();
        let number = field()?.strip_suffix(':')?;
        let _: u64 = parse_decimal(number)?;
        let local = parse_endpoint(field()?)?;
        let peer = parse_endpoint(field()?)?;
        let state = u8::try_from(parse_hex(field()?, 2)?).ok()?;
        // Queues, timers, retransmissions.
        for _ in 0..3 {
            field()?;
        }
        let uid = u32::try_from(parse_decimal(field()?)?).ok()?;
        field()?;
        let inode = parse_decimal(field()?)?;
        Some(Self {
            local,
            peer,
            state,
            uid,
            inode,
        })
    }

    /// Whether it listens, is connected, or was connected a minute ago.
    pub(super) fn is_relevant(&self) -> bool {
        matches!(self.state, LISTEN | ESTABLISHED) || CLOSING.contains(&self.state)
    }
}

/// One end. An IPv4 address within IPv6 becomes an IPv4 address.
fn parse_endpoint(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::try_from(parse_hex(port, 4)?).ok()?;
    Some(SocketAddr::new(parse_ip(address)?, port))
}

/// Parses an address, which is in network order in memory. The kernel prints its 32-bit words in
/// host order (`get_tcp4_sock` in `net/ipv4/tcp_ipv4.c`, `get_tcp6_sock` in `net/ipv6/tcp_ipv6.c`).
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |text: &str| {
        u32::try_from(parse_hex(text, 8)?)
            .ok()
            .map(u32::to_ne_bytes)
    };
    if text.len() == 8 {
        return word(text).map(|octets| Ipv4Addr::from(octets).into());
    }
    let mut octets = [0; 16];
    if text.len() != 32 {
        return None;
    }
    for (chunk, at) in octets.chunks_exact_mut(4).zip((0..).step_by(8)) {
        chunk.copy_from_slice(&word(text.get(at..at + 8)?)?);
    }
    Some(IpAddr::from(octets).to_canonical())
}

/// A hexadecimal number with this many digits.
pub(super) fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                          retrnsmt   uid  timeout inode\n";

    fn line(local: &str, state: &str, inode: u64) -> String {
        let far = if local.len() > 20 {
            format!("{}:D2F0", "0".repeat(32))
        } else {
            "0100007F:D2F0".to_owned()
        };
        from(local, &far, state, inode)
    }

    fn from(local: &str, far: &str, state: &str, inode: u64) -> String {
        format!(
            "   7: {local} {far} {state} 00000000:00000000 00:00000000 00000000  1000        0 \
             {inode} 1 ffff8881 100 0 0 10 0\n"
        )
    }

    fn listing(lines: &[String]) -> String {
        [HEADER, &lines.concat()].concat()
    }

    /// 10.0.0.2.
    fn own() -> LocalAddresses {
        LocalAddresses::from_ranges(&[(Ipv4Addr::new(10, 0, 0, 2), 32)])
    }

    fn read(lines: &[String]) -> SocketTable {
        both(&listing(lines), None)
    }

    fn both(four: &str, six: Option<&str>) -> SocketTable {
        SocketTable::read(four.as_bytes(), six.map(str::as_bytes), own()).unwrap()
    }

    /// The open and closed connections to the listening socket with this inode.
    fn count(table: &SocketTable, inode: u64) -> Option<(usize, usize)> {
        let to = || {
            table
                .listening_address(inode)
                .map(|it| table.connections_to(it))
        };
        let open = to()?.filter(|it| it.is_open).count();
        Some((open, to()?.count() - open))
    }

    #[test]
    fn connections_are_counted_by_address_and_port() {
        let table = read(&[
            line("0100007F:1F90", "0A", 11),
            line("00000000:1F91", "0A", 12),
            line("0100007F:0016", "0A", 13),
            // Two to the first, one of them not accepted yet.
            from("0100007F:1F90", "0100007F:D2F0", "01", 21),
            from("0100007F:1F90", "0100007F:D2F1", "01", 0),
            // Three to the second.
            line("0100007F:1F91", "01", 22),
            line("0200000A:1F91", "01", 23),
            line("0300000A:1F91", "01", 24),
            // To another address at the port of the first.
            line("0200000A:1F90", "01", 25),
            // Closed, one by each side; not answered yet; and one that the server never closed.
            from("0100007F:1F90", "0100007F:D2F2", "06", 0),
            from("0100007F:D2F3", "0100007F:1F90", "06", 0),
            from("0100007F:1F90", "0100007F:D2F4", "03", 0),
            from("0100007F:1F90", "0100007F:D2F5", "08", 26),
            // An outgoing connection.
            line("0100007F:8000", "01", 27),
        ]);
        for (inode, expected) in [
            (11, Some((2, 2))),
            (12, Some((3, 0))),
            (13, Some((0, 0))),
            (21, None),
            (99, None),
        ] {
            assert_eq!(count(&table, inode), expected, "{inode}");
        }
    }

    #[test]
    fn ipv6_wildcard_accepts_ipv4_unless_taken() {
        let any_six = format!("{}:1F90", "0".repeat(32));
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        let six = || listing(&[line(&any_six, "0A", 1), line(mapped, "01", 2)]);
        let table = both(HEADER, Some(&six()));
        assert_eq!(count(&table, 1), Some((1, 0)));
        let four = listing(&[line("00000000:1F90", "0A", 3)]);
        let table = both(&four, Some(&six()));
        assert_eq!(
            (count(&table, 1), count(&table, 3)),
            (Some((0, 0)), Some((1, 0)))
        );
    }

    #[test]
    fn client_is_found_in_the_same_namespace() {
        let table = read(&[
            line("00000000:1F90", "0A", 11),
            from("0100007F:1F90", "0100007F:D2F0", "01", 21),
            from("0100007F:D2F0", "0100007F:1F90", "01", 31),
            from("0200000A:1F90", "077100CB:115C", "01", 22),
        ]);
        let to = table.connections_to(table.listening_address(11).unwrap());
        let clients: Vec<_> = to
            .map(|it| (table.client_inode(it), table.is_local(it.peer)))
            .collect();
        assert_eq!(clients, [(None, false), (Some(31), true)]);
    }

    #[test]
    fn bound_foreign_address_is_not_local() {
        let table = read(&[
            line("00000000:1F90", "0A", 11),
            // Bound with IP_FREEBIND.
            line("077100CB:1E61", "0A", 12),
            from("0200000A:1F90", "077100CB:115C", "01", 22),
            from("0200000A:1F90", "0200000A:115D", "01", 23),
        ]);
        let to = table.connections_to(table.listening_address(11).unwrap());
        let are_here: Vec<bool> = to.map(|it| table.is_local(it.peer)).collect();
        assert_eq!(are_here, [true, false]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn endpoints_are_parsed_as_written() {
        for (text, expected) in [
            ("0100007F:1F90", "127.0.0.1:8080"),
            ("077100CB:115C", "203.0.113.7:4444"),
            ("00000000000000000000000001000000:0016", "[::1]:22"),
            (
                "B80D0120000000000000000067452301:FFFF",
                "[2001:db8::123:4567]:65535",
            ),
            // An IPv4 address in an IPv6 socket.
            ("0000000000000000FFFF0000077100CB:0001", "203.0.113.7:1"),
        ] {
            assert_eq!(parse_endpoint(text), expected.parse().ok(), "{text}");
        }
        for text in [
            "0100007F",
            "0100007:1F90",
            "é100007F:1F90",
            ":",
            "0100007F:1F90:",
        ] {
            assert_eq!(parse_endpoint(text), None, "{text}");
        }
    }

    #[test]
    fn peers_are_found_by_socket() {
        let table = read(&[
            line("0100007F:9C40", "01", 30),
            line("0100007F:1F90", "0A", 20),
            line("0100007F:9C41", "01", 10),
            line("0100007F:9C42", "01", 0),
        ]);
        let count = |inodes: &[u64]| table.peers(inodes).count();
        assert_eq!(count(&[10, 20, 30, 40, 0]), 2);
        assert_eq!((count(&[0]), count(&[])), (0, 0));
    }

    #[test]
    fn peer_of_an_incoming_connection_is_omitted() {
        let lines = [
            // Listed before and after it, on this address, on all and on another.
            line("0100007F:1F90", "01", 30),
            line("0100007F:1F90", "0A", 20),
            line("00000000:1F91", "0A", 21),
            line("0100007F:1F91", "01", 31),
            line("0200000A:1F92", "0A", 22),
            line("0100007F:1F92", "01", 32),
            line("0100007F:1F93", "01", 33),
            line("0100007F:1F94", "01", 34),
        ];
        let listeners = |table: &SocketTable| -> Vec<u64> {
            let all = 30..=34;
            all.filter(|inode| table.peers(&[*inode]).next().is_some())
                .collect()
        };
        assert_eq!(listeners(&read(&lines)), [33, 34]);
        // Where a socket of the other family listens.
        let six = format!("{}:1F93", "0".repeat(32));
        let six = listing(&[line(&six, "0A", 40)]);
        assert_eq!(listeners(&both(&listing(&lines), Some(&six))), [34]);
    }

    #[test]
    fn malformed_line_rejects_the_file() {
        let good = line("0100007F:1F90", "0A", 11);
        let bad = [
            good.replace("7:", "7"),
            good.replace("0100007F:1F90", "0100007:1F90"),
            good.replace("0100007F:1F90", "0100007F:1F9"),
            good.replace("0100007F:1F90", "+100007F:1F90"),
            good.replace(" 0A ", " 00A "),
            good.replace(" 11 ", " -11 "),
            good.replace(" 11 ", " 99999999999999999999 "),
            "   7: 0100007F:1F90 0100007F:D2F0 0A\n".to_owned(),
            "\n".to_owned(),
            "x".repeat(600),
            // Truncated.
            good.trim_end().to_owned(),
        ];
        for bad in bad {
            let text = [HEADER, &good, &bad].concat();
            assert_eq!(
                SocketTable::read(text.as_bytes(), None, own()),
                Err(SocketListError::NotSockets),
                "{bad}"
            );
        }
        for text in ["", "hello\n"] {
            let read = SocketTable::read(text.as_bytes(), None, own());
            assert_eq!(read, Err(SocketListError::NotSockets));
        }
        let empty = SocketTable {
            addresses: own(),
            ..SocketTable::default()
        };
        assert_eq!(both(HEADER, Some(HEADER)), empty);
    }

    #[test]
    fn too_long_file_is_unknown() {
        let good = line("0100007F:1F90", "0A", 11);
        let lines = |times: u64| {
            let lines = good.as_bytes().repeat(100);
            let lines = io::BufReader::new(RepeatedLines { lines, at: 0 });
            let lines = HEADER
                .as_bytes()
                .chain(lines.take(times * good.len() as u64));
            SocketTable::read(lines, None, own()).map(|_| ())
        };
        let most = LIMITS.lines as u64;
        assert_eq!(lines(most + 1), Err(SocketListError::TooLong));
        // As many as used to make the table too long: the connections of one user.
        assert_eq!(lines(150_000), Ok(()));
    }

    struct RepeatedLines {
        lines: Vec<u8>,
        at: usize,
    }

    impl io::Read for RepeatedLines {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let length = (&self.lines[self.at..]).read(room)?;
            self.at = (self.at + length) % self.lines.len();
            Ok(length)
        }
    }

    #[test]
    fn kernel_output_is_read() {
        for name in ["tcp", "tcp6"] {
            let Ok(file) = std::fs::File::open(format!("/proc/self/net/{name}")) else {
                eprintln!("skipped: this kernel has no {name}");
                continue;
            };
            SocketTable::read(io::BufReader::new(file), None, own()).unwrap();
        }
    }
}
