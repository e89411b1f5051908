//! Which process used each client of a card last, as the kernel itself keeps it:
//! `/sys/kernel/debug/dri/MINOR/clients` (`drm_debugfs.c`).
//!
//! A client is its opener's until another process calls the driver through it
//! (`drm_file_update_pid`, Linux 6.7). The file has a column `id` with the clients'
//! numbers since commit 18c44fb647be of June 2025, the months of Linux 6.17. The heading
//! is believed, not the version. The file is root's, and may be missing: it only adds to
//! what descriptors tell. Other files of that directory must not be opened: reading
//! `amdgpu_gpu_recover` resets the GPU.

use crate::backend::drm::card::Card;
use crate::procfs::file::read_at_most;
use gpukill_proto::collect::IntoMap as _;
use std::collections::BTreeMap;
use std::path::Path;

/// A line takes some 150 bytes: so much is ten thousand clients.
const FILE_MAX: u64 = 1 << 21;

/// Columns after the name of a process, which may have blanks: tgid, dev, master, a, uid,
/// magic, name, id.
const COLUMNS: usize = 8;

/// The pid of the last user of each client, by the client's number. Empty where the
/// kernel does not tell.
pub(super) fn last_users(sysfs: &Path, card: &Card) -> BTreeMap<u64, u32> {
    let minors = card.nodes.iter().map(|node| node.number.minor);
    let mut files = minors.map(|minor| sysfs.join(format!("kernel/debug/dri/{minor}/clients")));
    // Each of a card's device files tells of all its clients.
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
    lines.filter_map(row).into_map()
}

/// From the right: a name may look like columns, and is what a process calls itself.
fn row(line: &str) -> Option<(u64, u32)> {
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
    fn the_last_user_of_each_client_is_read_by_its_number() {
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
    fn a_kernel_that_tells_no_numbers_tells_nothing() {
        let old = "command tgid dev master a uid magic\npython 4711 128 n n 1000 0\n";
        for text in [old, "", "\n", HEADING] {
            assert_eq!(parse(text.as_bytes()), BTreeMap::new(), "{text}");
        }
    }
}
