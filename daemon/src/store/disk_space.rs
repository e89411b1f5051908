//! The free space on the store's file system, and how much of it samples may use: they pause while
//! there is still space for others.

use std::path::Path;

/// Free and total bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskSpace {
    free: u64,
    total: u64,
}

/// Samples pause when less is free: enough for an hour of a host that logs a lot, and eight times
/// the reserve of the record.
pub(super) const MIN_FREE_BYTES: u64 = 64 << 20;

/// On a small file system an eighth of it is enough.
const MIN_FREE_DIVISOR: u64 = 8;

/// Less than SQLite needs to open a file: its shared memory takes 32 KiB.
const FULL_BYTES: u64 = 128 << 10;

impl DiskSpace {
    /// Reads the free space. If that fails, space counts as unlimited.
    pub(super) fn read(directory: &Path) -> Self {
        let Ok(status) = rustix::fs::statvfs(directory) else {
            return Self {
                free: u64::MAX,
                total: u64::MAX,
            };
        };
        // A file system without fixed inodes does not count them.
        let has_files = status.f_files == 0 || status.f_favail > 0;
        let blocks = if has_files { status.f_bavail } else { 0 };
        Self {
            free: blocks.saturating_mul(status.f_frsize),
            total: status.f_blocks.saturating_mul(status.f_frsize),
        }
    }

    #[cfg(test)]
    pub(super) const fn from_mib(free: u64, total: u64) -> Self {
        Self {
            free: free << 20,
            total: total << 20,
        }
    }

    /// Below this, samples pause.
    fn pause_threshold(self) -> u64 {
        MIN_FREE_BYTES.min(self.total / MIN_FREE_DIVISOR)
    }

    /// From this on, samples resume: a little more, so that they do not alternate.
    fn resume_threshold(self) -> u64 {
        self.pause_threshold() + self.pause_threshold() / 4
    }

    /// Whether samples may be written; `were` says whether they were written so far.
    pub(super) fn allows_samples(self, were: bool) -> bool {
        let wanted = if were {
            self.pause_threshold()
        } else {
            self.resume_threshold()
        };
        self.free >= wanted
    }

    /// Whether this many bytes may be reserved and enough is left.
    pub(super) fn has_spare(self, bytes: u64) -> bool {
        self.free >= self.resume_threshold().saturating_add(bytes)
    }

    /// Whether old rows may still be deleted, which takes space before it frees some.
    pub(super) fn allows_deleting(self) -> bool {
        self.free >= self.pause_threshold() / 4
    }

    /// Whether the file system is practically full.
    pub(super) const fn is_full(self) -> bool {
        self.free < FULL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn samples_pause_and_resume_at_thresholds() {
        // Free and total MiB; whether samples continue, and whether paused samples resume.
        let cases = [
            (63, 100_000, false, false),
            (64, 100_000, true, false),
            (79, 100_000, true, false),
            (80, 100_000, true, true),
            // An eighth of a small file system.
            (1, 16, false, false),
            (2, 16, true, false),
            (3, 16, true, true),
            (0, 0, true, true),
        ];
        for (free, total, goes_on, begins) in cases {
            let space = DiskSpace::from_mib(free, total);
            let found = (space.allows_samples(true), space.allows_samples(false));
            assert_eq!(found, (goes_on, begins), "{space:?}");
        }
    }

    #[test]
    fn reserving_does_not_pause_samples() {
        assert!(!DiskSpace::from_mib(87, 100_000).has_spare(8 * MIB));
        assert!(DiskSpace::from_mib(88, 100_000).has_spare(8 * MIB));
    }

    #[test]
    fn unknown_space_pauses_nothing() {
        let nowhere = DiskSpace::read(Path::new("/nowhere at all"));
        assert!(nowhere.allows_samples(false) && nowhere.has_spare(MIB));
        assert!(!nowhere.is_full());
        let here = DiskSpace::read(&std::env::temp_dir());
        assert!(here.total >= here.free);
    }
}
