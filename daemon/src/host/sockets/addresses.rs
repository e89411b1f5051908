//! The addresses of a network namespace as the kernel lists them (`/proc/PID/net/fib_trie`,
//! `fib_trie_seq_show` in `net/ipv4/fib_trie.c`, and `if_inet6`, `if6_seq_show` in
//! `net/ipv6/addrconf.c`). The local addresses of sockets prove nothing: any user may bind a socket
//! to an address that the host does not have (`IP_FREEBIND`).

use super::table::{SocketListError, parse_hex, read_line};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// The line limit of both files; longer files are unknown. A host has tens of addresses, a cluster
/// node thousands.
const MAX_LINES: usize = 1_000_000;

/// How many addresses and ranges are kept.
const MAX_ADDRESSES: usize = 1 << 16;

/// The addresses at which connections arrive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LocalAddresses {
    /// IPv4 ranges: their starts, by prefix length.
    v4_ranges: BTreeMap<u32, BTreeSet<u32>>,
    v6: BTreeSet<Ipv6Addr>,
    /// How many lines were read.
    pub(super) lines: usize,
}

impl LocalAddresses {
    /// Reads both files; without IPv6 the second does not exist.
    pub(super) fn read<R: BufRead>(four: R, six: Option<R>) -> Result<Self, SocketListError> {
        let mut addresses = Self::default();
        addresses.read_v4(four)?;
        if let Some(six) = six {
            addresses.read_v6(six)?;
        }
        Ok(addresses)
    }

    /// Whether packets to this address arrive here.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        match ip {
            ip if ip.is_loopback() => true,
            IpAddr::V4(ip) => {
                let begins = |length: &u32| range_start(ip, *length);
                let mut ranges = self.v4_ranges.iter();
                ranges.any(|(length, ranges)| ranges.contains(&begins(length)))
            }
            IpAddr::V6(ip) => self.v6.contains(&ip),
        }
    }

    /// Reads the table `Local:`, in which an address is followed by its range: `|-- 192.0.2.2`,
    /// then `/32 host LOCAL`. Other tables, such as those that redirect everything to a proxy, say
    /// nothing about addresses.
    fn read_v4(&mut self, mut file: impl BufRead) -> Result<(), SocketListError> {
        let mut room = Vec::new();
        let mut is_local = false;
        let mut address = None;
        while let Some(line) = self.read_line(&mut file, &mut room)? {
            if !line.starts_with(' ') {
                line.strip_suffix(':')
                    .ok_or(SocketListError::NotAddresses)?;
                (is_local, address) = (line == "Local:", None);
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            match words.next().ok_or(SocketListError::NotAddresses)? {
                "+--" => address = None,
                "|--" => {
                    let word = words.next().ok_or(SocketListError::NotAddresses)?;
                    let ip: Ipv4Addr = word.parse().map_err(|_| SocketListError::NotAddresses)?;
                    address = Some(ip);
                }
                word => {
                    let (length, ip) = parse_prefix(word)
                        .zip(address)
                        .ok_or(SocketListError::NotAddresses)?;
                    if is_local && words.nth(1) == Some("LOCAL") {
                        let ranges = self.v4_ranges.entry(length).or_default();
                        ranges.insert(range_start(ip, length));
                        self.check_room()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Each line starts with 32 hexadecimal digits: `fe80000000000000...01 02 40 20 80 eth0`.
    fn read_v6(&mut self, mut file: impl BufRead) -> Result<(), SocketListError> {
        let mut room = Vec::new();
        while let Some(line) = self.read_line(&mut file, &mut room)? {
            let mut words = line.split_ascii_whitespace();
            let address = words.next().and_then(|word| parse_hex(word, 32));
            let address = address.ok_or(SocketListError::NotAddresses)?;
            // Interface, prefix, scope, flags and name.
            if words.count() != 5 {
                return Err(SocketListError::NotAddresses);
            }
            self.v6.insert(Ipv6Addr::from(address));
            self.check_room()?;
        }
        Ok(())
    }

    fn read_line<'r>(
        &mut self,
        file: &mut impl BufRead,
        room: &'r mut Vec<u8>,
    ) -> Result<Option<&'r str>, SocketListError> {
        self.lines += 1;
        if self.lines > MAX_LINES {
            return Err(SocketListError::TooLong);
        }
        let line = read_line(file, room).map_err(|error| match error {
            SocketListError::NotSockets => SocketListError::NotAddresses,
            other => other,
        })?;
        let text = |line| std::str::from_utf8(line).map_err(|_| SocketListError::NotAddresses);
        line.map(text).transpose()
    }

    fn check_room(&self) -> Result<(), SocketListError> {
        let four: usize = self.v4_ranges.values().map(BTreeSet::len).sum();
        match four + self.v6.len() > MAX_ADDRESSES {
            true => Err(SocketListError::TooLong),
            false => Ok(()),
        }
    }

    /// Only these ranges, for tests.
    #[cfg(test)]
    pub(super) fn from_ranges(ranges: &[(Ipv4Addr, u32)]) -> Self {
        let mut addresses = Self::default();
        for (ip, length) in ranges {
            let ranges = addresses.v4_ranges.entry(*length).or_default();
            ranges.insert(range_start(*ip, *length));
        }
        addresses
    }
}

/// `/32`.
fn parse_prefix(word: &str) -> Option<u32> {
    let length: u32 = word.strip_prefix('/')?.parse().ok()?;
    (length <= 32).then_some(length)
}

/// The start of the range of this prefix length around an address.
fn range_start(ip: Ipv4Addr, length: u32) -> u32 {
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    ip.to_bits() & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 198.51.100.7
        /32 host LOCAL
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.0
           /24 link UNICAST
           /28 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
        |-- 192.0.2.34
           /32 host LOCAL tos=4
Id 100:
  |-- 0.0.0.0
     /0 host LOCAL
";

    const SIX: &str = "\
20010db8000000000000000000000007 02 40 00 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
";

    fn read(four: &str, six: Option<&str>) -> Result<LocalAddresses, SocketListError> {
        LocalAddresses::read(four.as_bytes(), six.map(str::as_bytes))
    }

    #[test]
    fn local_addresses_follow_the_kernel() {
        let addresses = read(FOUR, Some(SIX)).unwrap();
        let is_own = |ip: &str| addresses.contains(ip.parse().unwrap());
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "192.0.2.15",
            "192.0.2.34",
            "2001:db8::7",
            "::1",
        ] {
            assert!(is_own(ip), "{ip}");
        }
        for ip in [
            "0.0.0.0",
            "192.0.2.16",
            "192.0.2.35",
            "192.0.2.255",
            "198.51.100.7",
            "203.0.113.9",
            "2001:db8::8",
        ] {
            assert!(!is_own(ip), "{ip}");
        }
        assert_eq!(
            read("", None),
            Ok(LocalAddresses {
                lines: 1,
                ..LocalAddresses::default()
            })
        );
    }

    #[test]
    fn malformed_line_rejects_the_file() {
        for bad in [
            "nothing\n",
            "Local:\n  /32 host LOCAL\n",
            "Local:\n  |-- 192.0.2\n",
            "Local:\n  |-- 192.0.2.2\n  /33 host LOCAL\n",
            "Local:\n  |-- 192.0.2.2\n  32 host LOCAL\n",
            "Local:\n  |-- 192.0.2.2\n  +-- 192.0.2.0/24 2 0 2\n  /32 host LOCAL\n",
            "Local:\n  \n",
            "Local:",
        ] {
            assert_eq!(
                read(bad, None),
                Err(SocketListError::NotAddresses),
                "{bad:?}"
            );
        }
        for bad in [
            "00 01 02 03 04 lo\n",
            &SIX.replace(" 40", ""),
            &SIX.replace("20", "+0"),
        ] {
            assert_eq!(
                read(FOUR, Some(bad)),
                Err(SocketListError::NotAddresses),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn too_many_addresses_are_unknown() {
        let mut four = "Local:\n".to_owned();
        for number in 0..=u32::try_from(MAX_ADDRESSES).unwrap() {
            let ip = Ipv4Addr::from_bits(0x0A00_0000 + number);
            four += &format!("  |-- {ip}\n     /32 host LOCAL\n");
        }
        assert_eq!(read(&four, None), Err(SocketListError::TooLong));
    }

    #[test]
    fn kernel_output_is_read() {
        let open = |name: &str| std::fs::File::open(format!("/proc/self/net/{name}")).ok();
        let Some(four) = open("fib_trie") else {
            eprintln!("skipped: this kernel has no fib_trie");
            return;
        };
        let six = open("if_inet6").map(std::io::BufReader::new);
        LocalAddresses::read(std::io::BufReader::new(four), six).unwrap();
    }
}
