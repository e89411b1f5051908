//! Which users are persons: `UID_MIN` of `login.defs(5)`.

use crate::procfs::read_at_most;
use gpukill_policy::access::UID_MIN;
use std::path::Path;

/// The file is a few KiB of comments.
const FILE_MAX: u64 = 256 << 10;

/// The lowest uid of persons on this host, where its file has one.
pub(super) fn uid_min(host_root: &Path) -> u32 {
    let bytes = read_at_most(&host_root.join("etc/login.defs"), FILE_MAX);
    let text = bytes.unwrap_or_default();
    parse(&String::from_utf8_lossy(&text)).unwrap_or(UID_MIN)
}

/// The last line counts, as in shadow's programs.
fn parse(text: &str) -> Option<u32> {
    let mut numbers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("UID_MIN")).then(|| words.next()?.parse().ok())?
    });
    // Root is no person, and the highest uid is `nobody`.
    numbers
        .next_back()
        .filter(|uid| (1..u32::from(u16::MAX)).contains(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_min_is_read_from_the_file() {
        for (text, expected) in [
            ("# UID_MIN 7\nUID_MIN\t\t\t 500\nUID_MAX 60000\n", Some(500)),
            ("SYS_UID_MIN 100\n", None),
            ("UID_MIN 500\nUID_MIN 2000", Some(2000)),
            ("UID_MIN 0\n", None),
            ("UID_MIN 4294967295\n", None),
            ("UID_MIN x\n", None),
            ("UID_MIN\n", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        let root = tempfile::tempdir().unwrap();
        assert_eq!(uid_min(root.path()), 1000);
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/login.defs"), "UID_MIN 500\n").unwrap();
        assert_eq!(uid_min(root.path()), 500);
    }
}
