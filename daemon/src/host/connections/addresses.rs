//! The addresses of a network namespace, as the kernel lists them (`/proc/PID/net/fib_trie`,
//! `fib_trie_seq_show` in `net/ipv4/fib_trie.c`, and `if_inet6`, `if6_seq_show` in
//! `net/ipv6/addrconf.c`). Not what sockets say: anybody may bind one to an address that the
//! box has not got (`IP_FREEBIND`).

use super::table::{Broken, hex, line};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// Lines of both files. Of longer ones nothing is known: a box has tens of addresses, and a
/// node of a cluster thousands.
const LINES: usize = 1_000_000;

/// As many addresses and ranges of them are kept.
const MOST: usize = 1 << 16;

/// Where connections arrive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Ranges of IPv4: their beginnings, by the length of their prefix.
    four: BTreeMap<u32, BTreeSet<u32>>,
    six: BTreeSet<Ipv6Addr>,
    /// How much was read.
    pub(super) lines: usize,
}

impl Addresses {
    /// Reads both files; without IPv6 there is none of the second.
    pub(super) fn read<R: BufRead>(four: R, six: Option<R>) -> Result<Self, Broken> {
        let mut addresses = Self::default();
        addresses.read_four(four)?;
        if let Some(six) = six {
            addresses.read_six(six)?;
        }
        Ok(addresses)
    }

    /// Whether what is sent there arrives here.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        match ip {
            ip if ip.is_loopback() => true,
            IpAddr::V4(ip) => {
                let begins = |length: &u32| network(ip, *length);
                let mut ranges = self.four.iter();
                ranges.any(|(length, ranges)| ranges.contains(&begins(length)))
            }
            IpAddr::V6(ip) => self.six.contains(&ip),
        }
    }

    /// The table `Local:`, in which each address is followed by what it is the beginning of:
    /// `|-- 192.0.2.2`, then `/32 host LOCAL`. Others, such as those that hand everything to
    /// a proxy, say nothing of addresses.
    fn read_four(&mut self, mut file: impl BufRead) -> Result<(), Broken> {
        let mut room = Vec::new();
        let mut is_local = false;
        let mut address = None;
        while let Some(line) = self.line(&mut file, &mut room)? {
            if !line.starts_with(' ') {
                line.strip_suffix(':').ok_or(Broken::NotAddresses)?;
                (is_local, address) = (line == "Local:", None);
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            match words.next().ok_or(Broken::NotAddresses)? {
                "+--" => address = None,
                "|--" => {
                    let word = words.next().ok_or(Broken::NotAddresses)?;
                    let ip: Ipv4Addr = word.parse().map_err(|_| Broken::NotAddresses)?;
                    address = Some(ip);
                }
                word => {
                    let (length, ip) = prefix(word).zip(address).ok_or(Broken::NotAddresses)?;
                    if is_local && words.nth(1) == Some("LOCAL") {
                        let ranges = self.four.entry(length).or_default();
                        ranges.insert(network(ip, length));
                        self.check_room()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Each line begins with 32 digits: `fe80000000000000...01 02 40 20 80 eth0`.
    fn read_six(&mut self, mut file: impl BufRead) -> Result<(), Broken> {
        let mut room = Vec::new();
        while let Some(line) = self.line(&mut file, &mut room)? {
            let mut words = line.split_ascii_whitespace();
            let address = words.next().and_then(|word| hex(word, 32));
            let address = address.ok_or(Broken::NotAddresses)?;
            // Its interface, prefix, scope, flags and name.
            if words.count() != 5 {
                return Err(Broken::NotAddresses);
            }
            self.six.insert(Ipv6Addr::from(address));
            self.check_room()?;
        }
        Ok(())
    }

    fn line<'r>(
        &mut self,
        file: &mut impl BufRead,
        room: &'r mut Vec<u8>,
    ) -> Result<Option<&'r str>, Broken> {
        self.lines += 1;
        if self.lines > LINES {
            return Err(Broken::TooLong);
        }
        let line = line(file, room).map_err(|broken| match broken {
            Broken::NotSockets => Broken::NotAddresses,
            other => other,
        })?;
        let text = |line| std::str::from_utf8(line).map_err(|_| Broken::NotAddresses);
        line.map(text).transpose()
    }

    fn check_room(&self) -> Result<(), Broken> {
        let four: usize = self.four.values().map(BTreeSet::len).sum();
        match four + self.six.len() > MOST {
            true => Err(Broken::TooLong),
            false => Ok(()),
        }
    }

    /// Of these ranges alone, for tests.
    #[cfg(test)]
    pub(super) fn of(ranges: &[(Ipv4Addr, u32)]) -> Self {
        let mut addresses = Self::default();
        for (ip, length) in ranges {
            let ranges = addresses.four.entry(*length).or_default();
            ranges.insert(network(*ip, *length));
        }
        addresses
    }
}

/// `/32`.
fn prefix(word: &str) -> Option<u32> {
    let length: u32 = word.strip_prefix('/')?.parse().ok()?;
    (length <= 32).then_some(length)
}

/// Where the range of this prefix begins that this address is in.
fn network(ip: Ipv4Addr, length: u32) -> u32 {
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

    fn read(four: &str, six: Option<&str>) -> Result<Addresses, Broken> {
        Addresses::read(four.as_bytes(), six.map(str::as_bytes))
    }

    #[test]
    fn an_address_is_the_boxs_where_the_kernel_says_so_and_not_where_a_route_leads_elsewhere() {
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
            Ok(Addresses {
                lines: 1,
                ..Addresses::default()
            })
        );
    }

    #[test]
    fn a_line_that_is_none_of_them_makes_the_file_none() {
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
            assert_eq!(read(bad, None), Err(Broken::NotAddresses), "{bad:?}");
        }
        for bad in [
            "00 01 02 03 04 lo\n",
            &SIX.replace(" 40", ""),
            &SIX.replace("20", "+0"),
        ] {
            assert_eq!(read(FOUR, Some(bad)), Err(Broken::NotAddresses), "{bad:?}");
        }
    }

    #[test]
    fn very_many_addresses_are_not_taken_in_part() {
        let mut four = "Local:\n".to_owned();
        for number in 0..=u32::try_from(MOST).unwrap() {
            let ip = Ipv4Addr::from_bits(0x0A00_0000 + number);
            four += &format!("  |-- {ip}\n     /32 host LOCAL\n");
        }
        assert_eq!(read(&four, None), Err(Broken::TooLong));
    }

    #[test]
    fn what_a_kernel_writes_is_read() {
        let open = |name: &str| std::fs::File::open(format!("/proc/self/net/{name}")).ok();
        let Some(four) = open("fib_trie") else {
            eprintln!("skipped: this kernel has no fib_trie");
            return;
        };
        let six = open("if_inet6").map(std::io::BufReader::new);
        Addresses::read(std::io::BufReader::new(four), six).unwrap();
    }
}
