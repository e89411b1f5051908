//! Hashes of files that were read before: a thousand processes of one program cost one read.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// How many are kept; the least recently used goes first.
pub(super) const MAX_HASHES: usize = 256;

/// A version of a file. Writing to the file changes its times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    pub(super) fn from_metadata(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

#[derive(Default)]
pub(super) struct HashCache {
    hashes: BTreeMap<FileVersion, CachedHash>,
    /// Counts uses, as a clock.
    uses: u64,
}

struct CachedHash {
    hash: String,
    /// The count at its last use.
    last_use: u64,
}

impl HashCache {
    pub(super) fn get(&mut self, file: &FileVersion) -> Option<String> {
        let known = self.hashes.get_mut(file)?;
        self.uses += 1;
        known.last_use = self.uses;
        Some(known.hash.clone())
    }

    pub(super) fn insert(&mut self, file: FileVersion, hash: String) {
        if self.hashes.len() >= MAX_HASHES {
            let oldest = self.hashes.iter().min_by_key(|(_, known)| known.last_use);
            if let Some(oldest) = oldest.map(|(file, _)| file.clone()) {
                self.hashes.remove(&oldest);
            }
        }
        self.uses += 1;
        let last_use = self.uses;
        self.hashes.insert(file, CachedHash { hash, last_use });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }
}
