//! The hashes of files that were read before: a thousand processes of one program cost
//! one reading.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// So many are kept; then the one that was asked for longest ago makes room.
pub(super) const MOST: usize = 256;

/// A file as it was when it was read. Whoever writes to it changes its times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(super) fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// What was read.
#[derive(Default)]
pub(super) struct Before {
    hashes: BTreeMap<Identity, Known>,
    /// How often something was asked for or kept.
    times: u64,
}

struct Known {
    hash: String,
    /// The last of those times.
    asked: u64,
}

impl Before {
    /// The hash of a file that was read.
    pub(super) fn of(&mut self, file: &Identity) -> Option<String> {
        let known = self.hashes.get_mut(file)?;
        self.times += 1;
        known.asked = self.times;
        Some(known.hash.clone())
    }

    pub(super) fn keep(&mut self, file: Identity, hash: String) {
        if self.hashes.len() >= MOST {
            let oldest = self.hashes.iter().min_by_key(|(_, known)| known.asked);
            if let Some(oldest) = oldest.map(|(file, _)| file.clone()) {
                self.hashes.remove(&oldest);
            }
        }
        self.times += 1;
        let asked = self.times;
        self.hashes.insert(file, Known { hash, asked });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }
}
