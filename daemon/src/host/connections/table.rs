//! The TCP sockets of a network namespace, as the kernel lists them
//! (`/proc/PID/net/tcp`, `tcp6`; Documentation/networking/proc_net_tcp.rst).

use super::addresses::Addresses;
use super::collector::{Collector, LIMITS, LeftOut};
use crate::host::status::Status;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use gpukill_policy::access::Uids;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _};
use std::path::Path;
use std::sync::Arc;

/// The kernel pads lines to 149 bytes, and to 176 of `tcp6`, and a number too long
/// for its place makes one longer.
const MOST_LINE: usize = 512;

/// The states that matter here, as in `include/net/tcp_states.h`.
pub(super) const ESTABLISHED: u8 = 1;
pub(super) const LISTEN: u8 = 10;

/// States of a connection that was established and is being closed, or was closed within
/// the last minute: `FIN_WAIT1`, `FIN_WAIT2`, `TIME_WAIT`, `LAST_ACK`, `CLOSING`. Not
/// `CLOSE_WAIT`: a server that forgets to close a socket stays in it for ever.
const CLOSING: [u8; 5] = [4, 5, 6, 9, 11];

/// All sockets of a network namespace that matter here, but for those of users who have too
/// many.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SocketTable {
    /// Sockets that wait for connections, by inode.
    listening: BTreeMap<u64, SocketAddr>,
    /// Connections to ports on which a socket listens, ordered by port.
    accepted: Vec<Connection>,
    /// The client's socket of those of them that were made in this namespace: its inode, by
    /// the client's address and the server's.
    clients: BTreeMap<(SocketAddr, SocketAddr), u64>,
    /// The far ends of all other connections, by inode.
    made: BTreeMap<u64, SocketAddr>,
    /// Of this namespace.
    addresses: Addresses,
    /// The inodes of what listens. Shared, since each job remembers those that it knows.
    listeners: Arc<BTreeSet<u64>>,
    /// The ports on which a socket of IPv4 listens on all addresses.
    any_four: BTreeSet<u16>,
    left_out: LeftOut,
    /// How much was read.
    pub(super) lines: usize,
}

/// A connection to a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Connection {
    /// The port of the server; first, for the order.
    port: u16,
    /// The address of the server.
    pub(super) local: SocketAddr,
    /// The address of the client.
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
    /// Whose it is; 0 where that is not known any more.
    pub(super) uid: u32,
    /// 0 where no process has it open.
    pub(super) inode: u64,
}

/// Why a file tells nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    TooLong,
    NotSockets,
    NotAddresses,
    Unreadable(io::ErrorKind),
}

/// The lines of one file, of which never more than one is held.
struct Lines<R> {
    file: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Of a file that begins as the kernel's do.
    fn open(file: R) -> Result<Self, Broken> {
        let line = Vec::with_capacity(MOST_LINE);
        let mut lines = Self { file, line };
        match lines.line()? {
            Some(line) if line.trim_ascii_start().starts_with(b"sl ") => Ok(lines),
            Some(_) | None => Err(Broken::NotSockets),
        }
    }

    /// The socket of the next line; `None` at the end.
    fn socket(&mut self) -> Result<Option<Socket>, Broken> {
        let line = self.line()?;
        let parse = |line| Socket::parse(line).ok_or(Broken::NotSockets);
        line.map(parse).transpose()
    }

    fn line(&mut self) -> Result<Option<&[u8]>, Broken> {
        line(&mut self.file, &mut self.line)
    }
}

/// The next line of a file, without its end; `None` at the end.
pub(super) fn line<'r>(
    file: &mut impl BufRead,
    room: &'r mut Vec<u8>,
) -> Result<Option<&'r [u8]>, Broken> {
    room.clear();
    let length = file.take(MOST_LINE as u64).read_until(b'\n', room);
    if length.map_err(|error| Broken::Unreadable(error.kind()))? == 0 {
        return Ok(None);
    }
    match room.pop() {
        Some(b'\n') => Ok(Some(room)),
        Some(_) | None => Err(Broken::NotSockets),
    }
}

impl SocketTable {
    /// Reads the files of both families, line by line, of a namespace with these addresses.
    pub(super) fn read<R: BufRead>(
        four: R,
        six: Option<R>,
        addresses: Addresses,
    ) -> Result<Self, Broken> {
        let mut collector = Collector::new(LIMITS);
        let mut four = Lines::open(four)?;
        // The kernel lists first what listens. So of both files that is known before the rest.
        let first = loop {
            match four.socket()? {
                Some(socket) if socket.state == LISTEN => collector.add(socket)?,
                other => break other,
            }
        };
        if let Some(six) = six {
            let mut six = Lines::open(six)?;
            while let Some(socket) = six.socket()? {
                collector.add(socket)?;
            }
        }
        let mut next = first;
        while let Some(socket) = next {
            collector.add(socket)?;
            next = four.socket()?;
        }
        Ok(Self::of(collector, addresses))
    }

    fn of(collector: Collector, addresses: Addresses) -> Self {
        let lines = collector.lines() + addresses.lines;
        let (sockets, ports, left_out) = collector.end();
        let all = || sockets.iter();
        let is_listening = |socket: &&Socket| socket.state == LISTEN;
        let listening = || all().filter(is_listening);
        let is_any_four = |socket: &&Socket| socket.local.ip() == Ipv4Addr::UNSPECIFIED;
        let any_four = listening().filter(is_any_four);
        let mut table = Self {
            any_four: any_four.map(|socket| socket.local.port()).collect(),
            listeners: Arc::new(listening().map(|socket| socket.inode).collect()),
            listening: listening()
                .map(|socket| (socket.inode, socket.local))
                .collect(),
            addresses,
            left_out,
            lines,
            ..Self::default()
        };
        for socket in all().filter(|socket| socket.state != LISTEN) {
            let is_open = socket.state == ESTABLISHED;
            // The kernel does not tell who made a connection: one at a port where somebody
            // listens may have been made to it.
            if ports.contains(&socket.local.port()) {
                table.accepted.push(Connection {
                    port: socket.local.port(),
                    local: socket.local,
                    peer: socket.peer,
                    is_open,
                });
            } else if is_open && socket.inode != 0 {
                table.made.insert(socket.inode, socket.peer);
            }
            let is_to_a_server =
                ports.contains(&socket.peer.port()) && table.is_of_this_box(socket.peer);
            if is_to_a_server && is_open && socket.inode != 0 {
                let ends = (socket.local, socket.peer);
                table.clients.insert(ends, socket.inode);
            } else if is_to_a_server && !is_open {
                // The side that closes first keeps the trace of the connection.
                table.accepted.push(Connection {
                    port: socket.peer.port(),
                    local: socket.peer,
                    peer: socket.local,
                    is_open,
                });
            }
        }
        table.accepted.sort_unstable();
        table.accepted.dedup();
        table.accepted.shrink_to_fit();
        table
    }

    /// Whether sockets of the process with this directory may be missing here, since there
    /// was no room for all of its user's.
    pub(super) fn may_lack_those_of(&self, directory: &Path) -> bool {
        let has = |uids: &Uids| self.left_out.has(*uids);
        !self.left_out.is_empty() && Status::read(directory).uids.known().is_none_or(has)
    }

    /// How many sockets are kept.
    pub(super) fn len(&self) -> usize {
        self.listening.len() + self.accepted.len() + self.clients.len() + self.made.len()
    }

    /// The inodes of all sockets that listen.
    pub(super) const fn listeners(&self) -> &Arc<BTreeSet<u64>> {
        &self.listeners
    }

    /// Where the socket with this inode listens, if it does.
    pub(super) fn listening(&self, inode: u64) -> Option<SocketAddr> {
        self.listening.get(&inode).copied()
    }

    /// The far ends of the connections that these sockets have made.
    pub(super) fn peers(&self, inodes: &[u64]) -> impl Iterator<Item = SocketAddr> {
        inodes
            .iter()
            .filter_map(|inode| self.made.get(inode).copied())
    }

    /// The connections to a socket that listens there.
    pub(super) fn connections_to(&self, listener: SocketAddr) -> impl Iterator<Item = &Connection> {
        let (ip, port) = (listener.ip(), listener.port());
        let is_any = ip.is_unspecified();
        // Those of one port are ordered by address. Where a socket listens on one address of
        // many, the others are not even looked at.
        let first = self.accepted.partition_point(|it| match is_any {
            true => it.port < port,
            false => (it.port, it.local) < (port, listener),
        });
        let from_there = self.accepted.get(first..).unwrap_or_default().iter();
        let is_there = move |it: &&Connection| it.port == port && (is_any || it.local == listener);
        // A socket of IPv6 on all addresses accepts IPv4 too, where no socket of IPv4 does.
        let has_four = self.any_four.contains(&port);
        from_there.take_while(is_there).filter(move |it| match ip {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => it.local.is_ipv4(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => it.local.is_ipv6() || !has_four,
            IpAddr::V4(_) | IpAddr::V6(_) => true,
        })
    }

    /// Whether this end of a connection is in this namespace.
    pub(super) fn is_of_this_box(&self, end: SocketAddr) -> bool {
        self.addresses.contains(end.ip())
    }

    /// The inode of the client's socket, where the client is in this namespace and has the
    /// connection open.
    pub(super) fn client_of(&self, connection: &Connection) -> Option<u64> {
        let ends = (connection.peer, connection.local);
        self.clients.get(&ends).copied()
    }
}

impl Socket {
    /// Ten fields separated by blanks, and more that are not of interest:
    /// `0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 1000 0 12345`.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace();
        let mut field = || fields.next();
        let number = field()?.strip_suffix(':')?;
        let _: u64 = decimal(number)?;
        let local = endpoint(field()?)?;
        let peer = endpoint(field()?)?;
        let state = u8::try_from(hex(field()?, 2)?).ok()?;
        // Queues, timers, retransmissions.
        for _ in 0..3 {
            field()?;
        }
        let uid = u32::try_from(decimal(field()?)?).ok()?;
        field()?;
        let inode = decimal(field()?)?;
        Some(Self {
            local,
            peer,
            state,
            uid,
            inode,
        })
    }

    /// Whether it listens, is connected, or was a minute ago.
    pub(super) fn matters(&self) -> bool {
        matches!(self.state, LISTEN | ESTABLISHED) || CLOSING.contains(&self.state)
    }
}

/// One side. An address of IPv4 within IPv6 is told as what it is.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::try_from(hex(port, 4)?).ok()?;
    Some(SocketAddr::new(ip(address)?, port))
}

/// An address lies in memory in the order of the network. The kernel writes its words of
/// 32 bits as numbers of the processor (`get_tcp4_sock` in `net/ipv4/tcp_ipv4.c`,
/// `get_tcp6_sock` in `net/ipv6/tcp_ipv6.c`).
fn ip(text: &str) -> Option<IpAddr> {
    let word = |text: &str| u32::try_from(hex(text, 8)?).ok().map(u32::to_ne_bytes);
    if text.len() == 8 {
        return word(text).map(|octets| Ipv4Addr::from(octets).into());
    }
    let mut octets = [0; 16];
    if text.len() != 32 {
        return None;
    }
    for (place, at) in octets.chunks_exact_mut(4).zip((0..).step_by(8)) {
        place.copy_from_slice(&word(text.get(at..at + 8)?)?);
    }
    Some(IpAddr::from(octets).to_canonical())
}

/// A number of so many digits.
pub(super) fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

fn decimal(text: &str) -> Option<u64> {
    // `parse` would take a sign.
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
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
    fn own() -> Addresses {
        Addresses::of(&[(Ipv4Addr::new(10, 0, 0, 2), 32)])
    }

    fn read(lines: &[String]) -> SocketTable {
        both(&listing(lines), None)
    }

    fn both(four: &str, six: Option<&str>) -> SocketTable {
        SocketTable::read(four.as_bytes(), six.map(str::as_bytes), own()).unwrap()
    }

    /// How many connections are open and how many closed to what listens with this inode.
    fn count(table: &SocketTable, inode: u64) -> Option<(usize, usize)> {
        let to = || table.listening(inode).map(|it| table.connections_to(it));
        let open = to()?.filter(|it| it.is_open).count();
        Some((open, to()?.count() - open))
    }

    #[test]
    fn connections_to_what_listens_are_counted_by_address_and_port() {
        let table = read(&[
            line("0100007F:1F90", "0A", 11),
            line("00000000:1F91", "0A", 12),
            line("0100007F:0016", "0A", 13),
            // Two to the first, of which one is not accepted yet.
            from("0100007F:1F90", "0100007F:D2F0", "01", 21),
            from("0100007F:1F90", "0100007F:D2F1", "01", 0),
            // Three to the second.
            line("0100007F:1F91", "01", 22),
            line("0200000A:1F91", "01", 23),
            line("0300000A:1F91", "01", 24),
            // To another's at the port of the first.
            line("0200000A:1F90", "01", 25),
            // Closed, one by each side; not answered yet; and one that the server forgot.
            from("0100007F:1F90", "0100007F:D2F2", "06", 0),
            from("0100007F:D2F3", "0100007F:1F90", "06", 0),
            from("0100007F:1F90", "0100007F:D2F4", "03", 0),
            from("0100007F:1F90", "0100007F:D2F5", "08", 26),
            // A client's, to elsewhere.
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
    fn what_listens_on_all_addresses_of_ipv6_accepts_ipv4_unless_another_does() {
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
    fn the_client_of_a_connection_is_found_in_the_same_network() {
        let table = read(&[
            line("00000000:1F90", "0A", 11),
            from("0100007F:1F90", "0100007F:D2F0", "01", 21),
            from("0100007F:D2F0", "0100007F:1F90", "01", 31),
            from("0200000A:1F90", "077100CB:115C", "01", 22),
        ]);
        let to = table.connections_to(table.listening(11).unwrap());
        let clients: Vec<_> = to
            .map(|it| (table.client_of(it), table.is_of_this_box(it.peer)))
            .collect();
        assert_eq!(clients, [(None, false), (Some(31), true)]);
    }

    #[test]
    fn a_strangers_socket_at_the_address_of_a_client_does_not_make_it_one_of_this_box() {
        let table = read(&[
            line("00000000:1F90", "0A", 11),
            // Bound with IP_FREEBIND.
            line("077100CB:1E61", "0A", 12),
            from("0200000A:1F90", "077100CB:115C", "01", 22),
            from("0200000A:1F90", "0200000A:115D", "01", 23),
        ]);
        let to = table.connections_to(table.listening(11).unwrap());
        let are_here: Vec<bool> = to.map(|it| table.is_of_this_box(it.peer)).collect();
        assert_eq!(are_here, [true, false]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn an_end_is_read_as_the_kernel_writes_it() {
        for (text, expected) in [
            ("0100007F:1F90", "127.0.0.1:8080"),
            ("077100CB:115C", "203.0.113.7:4444"),
            ("00000000000000000000000001000000:0016", "[::1]:22"),
            (
                "B80D0120000000000000000067452301:FFFF",
                "[2001:db8::123:4567]:65535",
            ),
            // One of IPv4 in a socket of IPv6.
            ("0000000000000000FFFF0000077100CB:0001", "203.0.113.7:1"),
        ] {
            assert_eq!(endpoint(text), expected.parse().ok(), "{text}");
        }
        for text in [
            "0100007F",
            "0100007:1F90",
            "é100007F:1F90",
            ":",
            "0100007F:1F90:",
        ] {
            assert_eq!(endpoint(text), None, "{text}");
        }
    }

    #[test]
    fn far_ends_are_found_by_the_sockets_that_have_them() {
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
    fn the_far_end_of_a_connection_to_what_listens_is_nobodys() {
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
        let told = |table: &SocketTable| -> Vec<u64> {
            let all = 30..=34;
            all.filter(|inode| table.peers(&[*inode]).next().is_some())
                .collect()
        };
        assert_eq!(told(&read(&lines)), [33, 34]);
        // Where a socket of the other family listens.
        let six = format!("{}:1F93", "0".repeat(32));
        let six = listing(&[line(&six, "0A", 40)]);
        assert_eq!(told(&both(&listing(&lines), Some(&six))), [34]);
    }

    #[test]
    fn a_line_that_is_no_socket_makes_the_file_none() {
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
            // Cut off.
            good.trim_end().to_owned(),
        ];
        for bad in bad {
            let text = [HEADER, &good, &bad].concat();
            assert_eq!(
                SocketTable::read(text.as_bytes(), None, own()),
                Err(Broken::NotSockets),
                "{bad}"
            );
        }
        for text in ["", "hello\n"] {
            let read = SocketTable::read(text.as_bytes(), None, own());
            assert_eq!(read, Err(Broken::NotSockets));
        }
        let empty = SocketTable {
            addresses: own(),
            ..SocketTable::default()
        };
        assert_eq!(both(HEADER, Some(HEADER)), empty);
    }

    #[test]
    fn a_file_that_is_too_long_is_not_told_in_part() {
        let good = line("0100007F:1F90", "0A", 11);
        let lines = |times: u64| {
            let lines = good.as_bytes().repeat(100);
            let lines = io::BufReader::new(Repeated { lines, at: 0 });
            let lines = HEADER
                .as_bytes()
                .chain(lines.take(times * good.len() as u64));
            SocketTable::read(lines, None, own()).map(|_| ())
        };
        let most = LIMITS.lines as u64;
        assert_eq!(lines(most + 1), Err(Broken::TooLong));
        // As many as made the table too long before: the connections of one user.
        assert_eq!(lines(150_000), Ok(()));
    }

    /// The same lines again and again.
    struct Repeated {
        lines: Vec<u8>,
        at: usize,
    }

    impl io::Read for Repeated {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let length = (&self.lines[self.at..]).read(room)?;
            self.at = (self.at + length) % self.lines.len();
            Ok(length)
        }
    }

    #[test]
    fn what_a_kernel_writes_is_read() {
        for name in ["tcp", "tcp6"] {
            let Ok(file) = std::fs::File::open(format!("/proc/self/net/{name}")) else {
                eprintln!("skipped: this kernel has no {name}");
                continue;
            };
            SocketTable::read(io::BufReader::new(file), None, own()).unwrap();
        }
    }
}
