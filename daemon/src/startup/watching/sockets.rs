//! Keeps, in a file, which sockets others have been connected to.

use crate::host::connections::Kept;
use crate::state_file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The file, in the daemon's own directory.
const FILE: &str = "sockets.json";

/// So many sockets as are kept are shorter.
const MOST: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    /// The boot of the box: another gives the same numbers to other sockets.
    boot: String,
    /// Inodes.
    had_others: BTreeSet<u64>,
}

/// What was kept in this directory in this boot of the box, and where more is.
pub(super) fn kept(directory: &Path, boot: &str) -> Kept {
    let path = directory.join(FILE);
    let sockets = read(&path, boot);
    let boot = boot.to_owned();
    let mut is_broken = false;
    let keep = move |sockets: &BTreeSet<u64>| {
        let written = write(&path, &boot, sockets);
        if let Err(error) = &written
            && !is_broken
        {
            tracing::warn!(path = %path.display(), %error, "which jobs have had clients cannot be kept: a restart forgets it");
        }
        is_broken = written.is_err();
    };
    Kept {
        sockets,
        keep: Box::new(keep),
    }
}

/// A file that cannot be used counts as none.
fn read(path: &Path, boot: &str) -> BTreeSet<u64> {
    let written: Option<Written> = state_file::read(path, MOST).unwrap_or_else(|why| {
        tracing::warn!(path = %path.display(), why, "which jobs have had clients cannot be read");
        None
    });
    let written = written.filter(|written| written.boot == boot);
    written.map(|it| it.had_others).unwrap_or_default()
}

fn write(path: &Path, boot: &str, sockets: &BTreeSet<u64>) -> std::io::Result<()> {
    let written = Written {
        version: state_file::VERSION,
        boot: boot.to_owned(),
        had_others: sockets.clone(),
    };
    state_file::write(path, &written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_after_a_restart_and_not_after_a_boot() {
        let directory = tempfile::tempdir().unwrap();
        let sockets = BTreeSet::from([5, 7]);
        let read = |boot| kept(directory.path(), boot).sockets;
        assert_eq!(read("one"), BTreeSet::new());
        (kept(directory.path(), "one").keep)(&sockets);
        assert_eq!((read("one"), read("two")), (sockets, BTreeSet::new()));
        let other = r#"{"version":2,"boot":"one","had_others":[5]}"#;
        for unusable in ["{", other] {
            std::fs::write(directory.path().join(FILE), unusable).unwrap();
            assert_eq!(read("one"), BTreeSet::new());
        }
    }
}
