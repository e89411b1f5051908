//! Disk space reserved for the record: a file of real blocks, released when the file system is full
//! and recreated when there is space again.

use super::database::WAL_LIMIT;
use super::disk_space::DiskSpace;
use crate::fault::FaultCause;
use crate::log_events::event;
use gpukill_proto::model::FaultCode;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "reserve";

/// The size: as much as SQLite's log may hold before it is emptied, and as much again for the
/// database into which the log is emptied.
pub(super) const RESERVE_BYTES: u64 = 2 * LOG_BYTES;

const LOG_BYTES: u64 = WAL_LIMIT as u64;

pub(super) struct DiskReserve {
    path: PathBuf,
    state: ReserveState,
}

#[derive(Debug, PartialEq, Eq)]
enum ReserveState {
    /// Not checked yet.
    Unknown,
    Present,
    /// The record continues in the released space.
    Released,
    /// The reserve cannot be created; holds the reason.
    Missing(String),
}

impl DiskReserve {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE_NAME),
            state: ReserveState::Unknown,
        }
    }

    /// Whether the reserve exists, so that nothing has to be done.
    pub(super) fn is_present(&self) -> bool {
        self.state == ReserveState::Present
    }

    /// The fault of the reserve. While the state is the same, the text is the same.
    pub(super) fn fault(&self) -> Option<FaultCause> {
        let path = self.path.display();
        let (code, what) = match &self.state {
            ReserveState::Unknown | ReserveState::Present => return None,
            ReserveState::Released => (
                FaultCode::DiskFull,
                format!("{path}: the disk is full: recording continues from the reserve"),
            ),
            ReserveState::Missing(why) => (
                FaultCode::ReserveMissing,
                format!("{path}: the record has no reserve for a full disk: {why}"),
            ),
        };
        Some(FaultCause::new(code, what))
    }

    /// Creates the reserve if it is missing and there is space for it.
    pub(super) fn ensure(&mut self, space: DiskSpace) {
        if self.state == ReserveState::Present && self.is_complete() {
            return;
        }
        let was_given_up = self.state == ReserveState::Released;
        if self.is_complete() {
            self.state = ReserveState::Present;
        } else if space.has_spare(RESERVE_BYTES) {
            self.state = self.create().map_or_else(
                |error| {
                    // A partial reserve takes space from others and is of no use.
                    let _ = std::fs::remove_file(&self.path);
                    ReserveState::Missing(error.to_string())
                },
                |()| ReserveState::Present,
            );
        } else if !was_given_up {
            self.state = ReserveState::Missing("there is no space for it".into());
        }
        if was_given_up && self.is_present() {
            event!(ReserveRestored);
        }
    }

    /// Releases the reserve; returns false if there is none. `log` is the write-ahead log of the
    /// record: it gets its half at once, before others take the space.
    pub(super) fn release(&mut self, log: &Path) -> bool {
        if std::fs::remove_file(&self.path).is_err() {
            return false;
        }
        event!(ReserveUsed);
        self.state = ReserveState::Released;
        // Blocks beyond the end of the log belong to it without being part of its contents. If they
        // cannot be allocated, the log takes what it finds. No process locks this file, so closing
        // it here drops no lock of SQLite.
        let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut open = OpenOptions::new();
        if let Ok(log) = open.write(true).custom_flags(no_follow).open(log) {
            let _ = fallocate(&log, FallocateFlags::KEEP_SIZE, 0, LOG_BYTES);
        }
        true
    }

    /// Whether the reserve exists with all its blocks.
    fn is_complete(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| {
            metadata.is_file()
                && metadata.len() == RESERVE_BYTES
                && metadata.blocks() >= RESERVE_BYTES / 512
        })
    }

    fn create(&self) -> std::io::Result<()> {
        // An incomplete reserve is removed first.
        let _ = std::fs::remove_file(&self.path);
        let mut create = OpenOptions::new();
        create.write(true).create_new(true).mode(0o600);
        let mut file = create.open(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_blocks(&mut file),
            Err(error) => Err(error.into()),
        }
    }
}

/// Allocates the blocks by writing to them. The bytes are not zero: a file system that omits zeros
/// would reserve no space.
fn write_blocks(file: &mut File) -> std::io::Result<()> {
    const STEP: usize = 64 << 10;
    let bytes: Vec<u8> = (0..STEP)
        .map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13).to_le_bytes()[0])
        .collect();
    for _ in 0..RESERVE_BYTES / STEP as u64 {
        file.write_all(&bytes)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_and_releases_real_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let log = directory.path().join("audit.db-wal");
        std::fs::write(&log, "log").unwrap();
        let space = DiskSpace::read(directory.path());
        // An incomplete reserve of an earlier daemon.
        std::fs::write(&path, "short").unwrap();
        let mut reserve = DiskReserve::new(directory.path());
        assert_eq!((reserve.is_present(), reserve.fault()), (false, None));
        reserve.ensure(space);
        assert!(reserve.is_present());
        let made = std::fs::metadata(&path).unwrap();
        assert_eq!((made.len(), made.mode() & 0o777), (RESERVE_BYTES, 0o600));
        assert!(made.blocks() * 512 >= RESERVE_BYTES);
        reserve.ensure(space);
        let kept = std::fs::metadata(&path).unwrap();
        assert_eq!(kept.ino(), made.ino(), "it is made once");

        assert!(reserve.release(&log));
        assert!(!path.exists());
        let log = std::fs::metadata(&log).unwrap();
        assert_eq!(log.len(), 3);
        assert!(log.blocks() * 512 >= LOG_BYTES, "the log has its half");
        assert_eq!(
            reserve.fault().map(|fault| fault.what),
            Some(format!(
                "{}: the disk is full: recording continues from the reserve",
                path.display()
            ))
        );
        assert!(!reserve.release(&path), "there is one");
        reserve.ensure(space);
        assert_eq!((reserve.is_present(), reserve.fault()), (true, None));
        // The file is deleted from outside.
        std::fs::remove_file(&path).unwrap();
        reserve.ensure(space);
        assert!(path.exists());
    }

    #[test]
    fn reports_a_failed_creation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        std::fs::create_dir(&path).unwrap();
        let mut reserve = DiskReserve::new(directory.path());
        reserve.ensure(DiskSpace::read(directory.path()));
        let why = "the record has no reserve for a full disk: File exists (os error 17)";
        let what = reserve.fault().map(|fault| fault.what);
        assert_eq!(what, Some(format!("{}: {why}", path.display())));
        std::fs::remove_dir(&path).unwrap();
        reserve.ensure(DiskSpace::read(directory.path()));
        assert_eq!(reserve.fault(), None);
    }

    #[test]
    fn written_reserve_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = DiskReserve::new(directory.path());
        let mut file = File::create(&reserve.path).unwrap();
        write_blocks(&mut file).unwrap();
        assert!(reserve.is_complete());
    }
}
