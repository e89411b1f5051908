//! The memory size of the host.

use crate::procfs::file::read_at_most;
use gpukill_proto::units::Bytes;
use std::path::Path;

/// Linux writes about 1,500 bytes.
const MEMINFO_MAX: u64 = 64 << 10;

/// `MemTotal` of `/proc/meminfo`: the memory that the kernel can use. `None` where it is not
/// reported.
pub(crate) fn total(procfs: &Path) -> Option<Bytes> {
    let bytes = read_at_most(&procfs.join("meminfo"), MEMINFO_MAX).ok()?;
    parse(&String::from_utf8_lossy(&bytes))
}

fn parse(text: &str) -> Option<Bytes> {
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counts_in_kib() {
        let text = "MemFree: 1 kB\nMemTotal:       24682416 kB\nMemFree: 2 kB\n";
        assert_eq!(parse(text), Some(Bytes(25_274_793_984)));
        for garbage in [
            "",
            "MemTotal: x kB",
            "MemTotal: 1",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(parse(garbage), None, "{garbage}");
        }
    }
}
