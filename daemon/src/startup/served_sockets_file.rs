//! Saves in a file which sockets have had clients.

use crate::host::sockets::SavedServedSockets;
use crate::state_file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The saved sockets always fit in this many bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServedSocketsFile {
    version: u32,
    /// The boot of the host: another boot gives the same numbers to other sockets.
    boot: String,
    /// Inodes.
    had_others: BTreeSet<u64>,
}

/// The sockets saved in this directory during this boot, and a function that saves more.
pub(super) fn load(directory: &Path, boot: &str) -> SavedServedSockets {
    let path = directory.join(state_file::SOCKETS_FILE);
    let sockets = read(&path, boot);
    let boot = boot.to_owned();
    let mut is_broken = false;
    let keep = move |sockets: &BTreeSet<u64>| {
        let written = write(&path, &boot, sockets);
        if let Err(error) = &written
            && !is_broken
        {
            tracing::warn!(
                path = %path.display(), %error,
                "cannot save which jobs have had clients: a restart forgets it"
            );
        }
        is_broken = written.is_err();
    };
    SavedServedSockets {
        sockets,
        save: Box::new(keep),
    }
}

/// A file that cannot be used counts as empty.
fn read(path: &Path, boot: &str) -> BTreeSet<u64> {
    let written: Option<ServedSocketsFile> =
        state_file::read(path, MAX_FILE_BYTES).unwrap_or_else(|why| {
            tracing::warn!(path = %path.display(), why, "cannot read which jobs have had clients");
            None
        });
    let written = written.filter(|written| written.boot == boot);
    written.map(|it| it.had_others).unwrap_or_default()
}

fn write(path: &Path, boot: &str, sockets: &BTreeSet<u64>) -> std::io::Result<()> {
    let written = ServedSocketsFile {
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
    fn survives_a_restart_but_not_a_boot() {
        let directory = tempfile::tempdir().unwrap();
        let sockets = BTreeSet::from([5, 7]);
        let read = |boot| load(directory.path(), boot).sockets;
        assert_eq!(read("one"), BTreeSet::new());
        (load(directory.path(), "one").save)(&sockets);
        assert_eq!((read("one"), read("two")), (sockets, BTreeSet::new()));
        let other = r#"{"version":2,"boot":"one","had_others":[5]}"#;
        for unusable in ["{", other] {
            let file = directory.path().join(state_file::SOCKETS_FILE);
            std::fs::write(file, unusable).unwrap();
            assert_eq!(read("one"), BTreeSet::new());
        }
    }
}
