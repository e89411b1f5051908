//! How much room the store's file system has left, and how much of it samples
//! may take: they pause while others still have some.

use std::path::Path;

/// What is free on a file system, and what it has in all, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    free: u64,
    total: u64,
}

/// Samples pause when less is free: an hour of a box that logs a lot, and eight
/// times what the record has in reserve.
pub(super) const FLOOR: u64 = 64 << 20;

/// So much of a small file system is enough: an eighth.
const FLOOR_SHARE: u64 = 8;

/// Less than SQLite needs to open a file: its shared memory takes 32 KiB.
const NOTHING: u64 = 128 << 10;

impl Space {
    /// Where that cannot be told, nothing is held against it.
    pub(super) fn of(directory: &Path) -> Self {
        let Ok(told) = rustix::fs::statvfs(directory) else {
            return Self {
                free: u64::MAX,
                total: u64::MAX,
            };
        };
        // A file system that keeps files anywhere does not count them.
        let has_files = told.f_files == 0 || told.f_favail > 0;
        let blocks = if has_files { told.f_bavail } else { 0 };
        Self {
            free: blocks.saturating_mul(told.f_frsize),
            total: told.f_blocks.saturating_mul(told.f_frsize),
        }
    }

    /// As if there were so much, in MiB.
    #[cfg(test)]
    pub(super) const fn of_mib(free: u64, total: u64) -> Self {
        Self {
            free: free << 20,
            total: total << 20,
        }
    }

    /// Below this samples pause.
    fn floor(self) -> u64 {
        FLOOR.min(self.total / FLOOR_SHARE)
    }

    /// What must be free before they go on: a little more, so that they do not
    /// come and go.
    fn enough(self) -> u64 {
        self.floor() + self.floor() / 4
    }

    /// Whether samples may be written; `were` says whether they were so far.
    pub(super) fn is_enough(self, were: bool) -> bool {
        let wanted = if were { self.floor() } else { self.enough() };
        self.free >= wanted
    }

    /// Whether so much may be taken for later and enough is left.
    pub(super) fn has_spare(self, bytes: u64) -> bool {
        self.free >= self.enough().saturating_add(bytes)
    }

    /// Whether what is too old may still be deleted: that takes room before it
    /// gives some.
    pub(super) fn allows_deleting(self) -> bool {
        self.free >= self.floor() / 4
    }

    /// Whether it is as good as full.
    pub(super) const fn is_used_up(self) -> bool {
        self.free < NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn samples_pause_below_a_floor_and_go_on_a_little_above_it() {
        // Free and in all, in MiB; whether they go on, and whether they begin
        // again.
        let cases = [
            (63, 100_000, false, false),
            (64, 100_000, true, false),
            (79, 100_000, true, false),
            (80, 100_000, true, true),
            // An eighth of a small one.
            (1, 16, false, false),
            (2, 16, true, false),
            (3, 16, true, true),
            (0, 0, true, true),
        ];
        for (free, total, goes_on, begins) in cases {
            let space = Space::of_mib(free, total);
            let found = (space.is_enough(true), space.is_enough(false));
            assert_eq!(found, (goes_on, begins), "{space:?}");
        }
    }

    #[test]
    fn what_is_taken_for_later_does_not_make_samples_pause() {
        assert!(!Space::of_mib(87, 100_000).has_spare(8 * MIB));
        assert!(Space::of_mib(88, 100_000).has_spare(8 * MIB));
    }

    #[test]
    fn where_nothing_can_be_told_nothing_pauses() {
        let nowhere = Space::of(Path::new("/nowhere at all"));
        assert!(nowhere.is_enough(false) && nowhere.has_spare(MIB));
        assert!(!nowhere.is_used_up());
        let here = Space::of(&std::env::temp_dir());
        assert!(here.total >= here.free);
    }
}
