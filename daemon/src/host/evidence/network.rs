//! The bytes that the network namespace of a process has sent (`/proc/PID/net/dev`;
//! `dev_seq_printf_stats` in `net/core/net-procfs.c`).

use super::NetworkSent;
use super::reader::error_reason;
use crate::procfs::{parse_decimal, read_at_most};
use std::fs::read_link;
use std::path::Path;

/// How much is read: some two thousand devices.
const MAX_BYTES: u64 = 256 << 10;

/// The bytes sent by the process with this directory, where it shares its network neither with the
/// first process below this root nor with the daemon.
pub(super) fn network_sent(root: &Path, directory: &Path) -> NetworkSent {
    read_sent(root, directory).unwrap_or_else(NetworkSent::Unknown)
}

fn read_sent(root: &Path, directory: &Path) -> Result<NetworkSent, String> {
    let namespace = namespace(directory)?;
    // The daemon's own can always be read; that of the first process needs a permission.
    if self::namespace(&root.join("self"))? == namespace {
        return Ok(NetworkSent::Shared);
    }
    let first = self::namespace(&root.join("1"));
    if first.map_err(|why| format!("the host's network: {why}"))? == namespace {
        return Ok(NetworkSent::Shared);
    }
    let text =
        read_at_most(&directory.join("net/dev"), MAX_BYTES).map_err(|it| error_reason(&it))?;
    if text.len() as u64 == MAX_BYTES {
        return Err("its network has too many devices".to_owned());
    }
    let bytes = total_sent(&text).ok_or("the list of its network devices is malformed")?;
    // The process may have entered another one meanwhile.
    if self::namespace(directory)? != namespace {
        return Err("it changed its network".to_owned());
    }
    Ok(NetworkSent::Own { namespace, bytes })
}

/// The number of the network namespace of the process with this directory.
fn namespace(directory: &Path) -> Result<u64, String> {
    let link = read_link(directory.join("ns/net")).map_err(|error| error_reason(&error))?;
    let number = link.to_str().and_then(|link| link.strip_prefix("net:["));
    let number = number.and_then(|rest| rest.strip_suffix(']'));
    number
        .and_then(parse_decimal)
        .ok_or_else(|| "its network has no number".to_owned())
}

/// The bytes that all devices except `lo` have sent.
pub(super) fn total_sent(text: &[u8]) -> Option<u64> {
    let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    let heads: [&[u8]; 2] = [b"Inter-|", b" face |"];
    for head in heads {
        lines.next().filter(|line| line.starts_with(head))?;
    }
    let mut bytes = 0_u64;
    for line in lines {
        let (name, sent) = parse_device(line)?;
        if name != b"lo" {
            bytes = bytes.saturating_add(sent);
        }
    }
    Some(bytes)
}

/// The name of a device and the bytes it has sent: the ninth of sixteen numbers after a colon,
/// which no name contains (`dev_valid_name` in `net/core/dev.c`).
fn parse_device(line: &[u8]) -> Option<(&[u8], u64)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = line.get(..colon)?.trim_ascii_start();
    let numbers = std::str::from_utf8(line.get(colon + 1..)?).ok()?;
    let numbers = numbers.split_ascii_whitespace().map(parse_decimal);
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let sent = numbers.get(8).filter(|_| numbers.len() == 16)?;
    Some((name, *sent)).filter(|_| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
";

    fn device(name: &str, sent: u64) -> String {
        format!(
            "{name:>6}:  77777     112    0    0    0     0          0         0 {sent:>8}     \
            112    0    0    0     0       0          0\n"
        )
    }

    fn read(devices: &[String]) -> Option<u64> {
        total_sent([HEADER, &devices.concat()].concat().as_bytes())
    }

    #[test]
    fn sums_all_devices_but_lo() {
        let lo = device("lo", 1_000);
        let cases: [(&[String], u64); 5] = [
            (&[], 0),
            (std::slice::from_ref(&lo), 0),
            (&[lo.clone(), device("eth0", 20), device("wg0", 3)], 23),
            (&[device("lo0", 20), device("a-name-with-15b", 3)], 23),
            (&[device("a", u64::MAX), device("b", 1)], u64::MAX),
        ];
        for (devices, expected) in cases {
            assert_eq!(read(devices), Some(expected), "{devices:?}");
        }
    }

    #[test]
    fn malformed_list_gives_nothing() {
        let good = device("eth0", 20);
        let bad = [
            good.replace(':', " "),
            good.replace("eth0", "    "),
            good.replace(" 20 ", " -20 "),
            good.replace(" 20 ", " x "),
            good.replace(" 20 ", " 99999999999999999999 "),
            good.replace(" 20 ", " "),
            good.replace(" 20 ", " 20 20 "),
            "\n".to_owned(),
            good.trim_end().to_owned(),
        ];
        for bad in bad {
            assert_eq!(read(&[good.clone(), bad.clone()]), None, "{bad}");
        }
        for text in [
            "",
            "\n",
            "Inter-|\n",
            &HEADER.replace("face", "name"),
            &good,
        ] {
            assert_eq!(total_sent(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn kernel_output_is_read() {
        let text = std::fs::read("/proc/self/net/dev").unwrap();
        assert!(total_sent(&text).is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = total_sent(&bytes);
            let _ = total_sent(&[HEADER.as_bytes(), &bytes].concat());
        }
    }
}
