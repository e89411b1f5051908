//! The TCP sockets of a network namespace, as the kernel lists them
//! (`/proc/PID/net/tcp`, `tcp6`; Documentation/networking/proc_net_tcp.rst).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read as _};

/// More of a file is not read: about 100,000 sockets.
const MOST_BYTES: u64 = 16 << 20;

/// The kernel pads lines to 149 bytes, and to 176 of `tcp6`, and a number too long
/// for its place makes one longer.
const MOST_LINE: usize = 512;

/// The states that matter here, as in `include/net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// One side of a socket: its port, and its address as the kernel writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Local {
    pub(super) port: u16,
    address: u128,
}

/// One file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Sockets that wait for connections, by inode.
    listening: BTreeMap<u64, Local>,
    /// How many connections there are to what listens.
    established: BTreeMap<Local, u32>,
    /// Each connection that is open in a process, by inode.
    open: Vec<Connection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    inode: u64,
    /// The near side's.
    port: u16,
    peer: SocketAddr,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) local: Local,
    pub(super) peer: SocketAddr,
    pub(super) state: u8,
    /// 0 where no process has it open.
    pub(super) inode: u64,
}

/// Why a file tells nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    TooLong,
    NotSockets,
    Unreadable(io::ErrorKind),
}

impl Table {
    /// Reads a whole file, or nothing.
    pub(super) fn read(file: impl BufRead) -> Result<Self, Broken> {
        let unreadable = |error: io::Error| Broken::Unreadable(error.kind());
        let mut file = file.take(MOST_BYTES);
        let mut table = Self::default();
        let mut line = Vec::with_capacity(MOST_LINE);
        let mut is_first = true;
        loop {
            line.clear();
            let most = MOST_LINE as u64;
            let length = (&mut file).take(most).read_until(b'\n', &mut line);
            if length.map_err(unreadable)? == 0 {
                break;
            }
            if line.pop() != Some(b'\n') {
                return Err(if file.limit() == 0 {
                    Broken::TooLong
                } else {
                    Broken::NotSockets
                });
            }
            if is_first {
                is_first = false;
                if !line.trim_ascii_start().starts_with(b"sl ") {
                    return Err(Broken::NotSockets);
                }
                continue;
            }
            table.add(&Socket::parse(&line).ok_or(Broken::NotSockets)?);
        }
        if file.limit() == 0 {
            return Err(Broken::TooLong);
        }
        if is_first {
            return Err(Broken::NotSockets);
        }
        table.forget_clients();
        table.forget_accepted(&table.ports());
        table.open.sort_unstable();
        Ok(table)
    }

    fn add(&mut self, socket: &Socket) {
        match socket.state {
            LISTEN => {
                self.listening.insert(socket.inode, socket.local);
            }
            ESTABLISHED => {
                let count = self.established.entry(socket.local).or_default();
                *count = count.saturating_add(1);
                if socket.inode != 0 {
                    self.open.push(Connection {
                        inode: socket.inode,
                        port: socket.local.port,
                        peer: socket.peer,
                    });
                }
            }
            // On its way up or down: nobody is served over it.
            _ => {}
        }
    }

    /// Most sockets are the near side of connections to elsewhere.
    fn forget_clients(&mut self) {
        let ports = self.ports();
        self.established
            .retain(|local, _| ports.contains(&local.port));
    }

    /// The ports on which anybody listens, on whatever address.
    pub(super) fn ports(&self) -> BTreeSet<u16> {
        self.listening.values().map(|local| local.port).collect()
    }

    /// Forgets the far ends of connections at these ports. The kernel does not tell who
    /// made a connection: one at a port where somebody listens may have been made to it.
    pub(super) fn forget_accepted(&mut self, ports: &BTreeSet<u16>) {
        self.open.retain(|it| !ports.contains(&it.port));
        self.open.shrink_to_fit();
    }

    /// Where these sockets listen, those of them that do.
    pub(super) fn listening(&self, inodes: &[u64]) -> BTreeSet<Local> {
        let listening = inodes.iter().filter_map(|inode| self.listening.get(inode));
        listening.copied().collect()
    }

    /// With whom these sockets have connected, those of them that have.
    pub(super) fn peers(&self, inodes: &[u64]) -> impl Iterator<Item = SocketAddr> {
        inodes
            .iter()
            .filter_map(|inode| {
                let place = self.open.binary_search_by_key(inode, |it| it.inode);
                place.ok().and_then(|place| self.open.get(place))
            })
            .map(|it| it.peer)
    }

    /// How many connections there are to these.
    pub(super) fn connections(&self, to: &BTreeSet<Local>) -> u32 {
        let established = self.established.iter();
        let served = established.filter(|(local, _)| {
            to.contains(local)
                || to.contains(&Local {
                    address: 0,
                    ..**local
                })
        });
        served.map(|(_, count)| *count).fold(0, u32::saturating_add)
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
        let local = local(field()?)?;
        let peer = peer(field()?)?;
        let state = u8::try_from(hex(field()?, 2)?).ok()?;
        // Queues, timers, retransmissions.
        for _ in 0..3 {
            field()?;
        }
        let _uid: u64 = decimal(field()?)?;
        field()?;
        let inode = decimal(field()?)?;
        Some(Self {
            local,
            peer,
            state,
            inode,
        })
    }
}

fn local(text: &str) -> Option<Local> {
    let (address, port) = text.split_once(':')?;
    Some(Local {
        port: u16::try_from(hex(port, 4)?).ok()?,
        address: hex(address, 8).or_else(|| hex(address, 32))?,
    })
}

/// The far side. An address of IPv4 within IPv6 is told as what it is.
fn peer(text: &str) -> Option<SocketAddr> {
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
fn hex(text: &str, digits: usize) -> Option<u128> {
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
        format!(
            "   7: {local} {far} {state} 00000000:00000000 00:00000000 00000000  1000        0 \
             {inode} 1 ffff8881 100 0 0 10 0\n"
        )
    }

    fn read(lines: &[String]) -> Table {
        Table::read([HEADER, &lines.concat()].concat().as_bytes()).unwrap()
    }

    #[test]
    fn connections_to_what_listens_are_counted_by_address_and_port() {
        let table = read(&[
            line("0100007F:1F90", "0A", 11),
            line("00000000:1F91", "0A", 12),
            line("0100007F:0016", "0A", 13),
            // Two to the first, one of them not accepted yet; three to the second.
            line("0100007F:1F90", "01", 21),
            line("0100007F:1F90", "01", 0),
            line("0100007F:1F91", "01", 22),
            line("0200000A:1F91", "01", 23),
            line("0300000A:1F91", "01", 24),
            // To another's at the port of the first; closed; and one of a client.
            line("0200000A:1F90", "01", 25),
            line("0100007F:1F90", "06", 0),
            line("0100007F:8000", "01", 26),
        ]);
        let count = |inodes: &[u64]| table.connections(&table.listening(inodes));
        let cases: [(&[u64], usize, u32); 6] = [
            (&[11], 1, 2),
            (&[12], 1, 3),
            (&[11, 12, 12, 99], 2, 5),
            (&[13], 1, 0),
            (&[21, 26], 0, 0),
            (&[], 0, 0),
        ];
        for (inodes, listening, expected) in cases {
            assert_eq!(table.listening(inodes).len(), listening, "{inodes:?}");
            assert_eq!(count(inodes), expected, "{inodes:?}");
        }
        // What is nobody's here is not kept.
        assert_eq!(table.established.len(), 5);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let any = format!("{}:1F90", "0".repeat(32));
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        let table = read(&[line(&any, "0A", 1), line(mapped, "01", 2)]);
        assert_eq!(table.connections(&table.listening(&[1])), 1);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_far_end_is_read_as_the_kernel_writes_it() {
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
            assert_eq!(peer(text), expected.parse().ok(), "{text}");
        }
        for text in [
            "0100007F",
            "0100007:1F90",
            "é100007F:1F90",
            ":",
            "0100007F:1F90:",
        ] {
            assert_eq!(peer(text), None, "{text}");
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
        let mut table = read(&[
            // Listed before and after it, on this address, on all and on another.
            line("0100007F:1F90", "01", 30),
            line("0100007F:1F90", "0A", 20),
            line("00000000:1F91", "0A", 21),
            line("0100007F:1F91", "01", 31),
            line("0200000A:1F92", "0A", 22),
            line("0100007F:1F92", "01", 32),
            line("0100007F:1F93", "01", 33),
            line("0100007F:1F94", "01", 34),
        ]);
        let told = |table: &Table| -> Vec<u64> {
            let all = 30..=34;
            all.filter(|inode| table.peers(&[*inode]).next().is_some())
                .collect()
        };
        assert_eq!(told(&table), [33, 34]);
        // Where those of the other family listen.
        table.forget_accepted(&[0x1f93].into());
        assert_eq!(told(&table), [34]);
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
                Table::read(text.as_bytes()),
                Err(Broken::NotSockets),
                "{bad}"
            );
        }
        for text in ["", "hello\n"] {
            assert_eq!(Table::read(text.as_bytes()), Err(Broken::NotSockets));
        }
        assert_eq!(Table::read(HEADER.as_bytes()), Ok(Table::default()));
    }

    #[test]
    fn a_file_that_is_too_long_is_not_told_in_part() {
        let good = line("0100007F:1F90", "0A", 11);
        let times = usize::try_from(MOST_BYTES).unwrap() / good.len() + 1;
        let text = [HEADER, &good.repeat(times)].concat();
        assert_eq!(Table::read(text.as_bytes()), Err(Broken::TooLong));
    }

    #[test]
    fn what_a_kernel_writes_is_read() {
        for name in ["tcp", "tcp6"] {
            let Ok(file) = std::fs::File::open(format!("/proc/self/net/{name}")) else {
                eprintln!("skipped: this kernel has no {name}");
                continue;
            };
            Table::read(io::BufReader::new(file)).unwrap();
        }
    }
}
