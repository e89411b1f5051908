//! Reads the last user of each client of a card from the kernel's own records:
//! `/sys/kernel/debug/dri/MINOR/clients` (`drm_debugfs.c`).
//!
//! A client belongs to its opener until another process calls the driver through it
//! (`drm_file_update_pid`, Linux 6.7). The file has a column `id` with the clients' numbers since
//! commit 18c44fb647be of June 2025, the time of Linux 6.17. The heading decides, not the version.
//! The file belongs to root and may be missing: it only supplements the descriptors. Other files of
//! that directory must not be opened: reading `amdgpu_gpu_recover` resets the GPU.

use crate::backend::drm::card::DrmCard;
use crate::procfs::read_at_most;
use gpukill_proto::collect::IntoMap as _;
use std::collections::BTreeMap;
use std::path::Path;

/// A line takes some 150 bytes: enough for ten thousand clients.
const FILE_MAX: u64 = 1 << 21;

/// The columns after the name of a process, which may contain blanks: tgid, dev, master, a, uid,
/// magic, name, id.
const COLUMNS: usize = 8;

/// The pid of the last user of each client, by the client's number. Empty where the kernel does not
/// report it.
pub(super) fn last_users(sysfs: &Path, card: &DrmCard) -> BTreeMap<u64, u32> {
    let minors = card.nodes.iter().map(|node| node.number.minor);
    let mut files = minors.map(|minor| sysfs.join(format!("kernel/debug/dri/{minor}/clients")));
    // Each device file of a card lists all clients of the card.
    let bytes = files.find_map(|file| read_at_most(&file, FILE_MAX).ok());
    bytes.map_or_else(BTreeMap::new, |bytes| parse(&bytes))
}

fn parse(bytes: &[u8]) -> BTreeMap<u64, u32> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    if heading.split_ascii_whitespace().next_back() != Some("id") {
        return BTreeMap::new();
    }
    lines.filter_map(parse_row).into_map()
}

/// Parses from the right: a process chooses its name, which may look like columns.
fn parse_row(line: &str) -> Option<(u64, u32)> {
    let mut columns = line.split_ascii_whitespace().rev();
    let id = columns.next()?.parse().ok()?;
    let pid = columns.nth(COLUMNS - 2)?.parse().ok()?;
    Some((id, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "             command  tgid dev master a   uid      magic \
        name                   id\n";

    #[test]
    fn last_users_are_keyed_by_client() {
        let text = format!(
            "{HEADING}      systemd-logind   812   0   y    y     0          0 <unset>    1\n  \
             Web Content x  4711 128   n    n  1000          0 browser   18446744073709551615\n  \
             <unknown>  4712 128   n    n     0          0 <unset>   17\n\
             evil 1 2 y y 0 0 x 9 4713 128 n n 1000 0 <unset> 18\n\
             torn 4714\n\n"
        );
        let expected = [(1, 812), (17, 4712), (18, 4713), (u64::MAX, 4711)];
        assert_eq!(parse(text.as_bytes()), BTreeMap::from(expected));
    }

    #[test]
    fn file_without_ids_is_ignored() {
        let old = "command tgid dev master a uid magic\npython 4711 128 n n 1000 0\n";
        for text in [old, "", "\n", HEADING] {
            assert_eq!(parse(text.as_bytes()), BTreeMap::new(), "{text}");
        }
    }
}
