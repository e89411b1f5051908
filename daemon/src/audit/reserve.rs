//! Room that is kept for the record: a file of real blocks, given up when the
//! file system is full, and made again when it is not.

use super::database::WAL_LIMIT;
use super::space::Space;
use crate::catalogue::tell;
use crate::faults::FaultCause;
use gpukill_proto::snapshot::FaultCode;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const NAME: &str = "reserve";

/// What is kept: as much as SQLite's log may hold before it is emptied, and as
/// much again for the file into which it is.
pub(super) const SIZE: u64 = 2 * LOG;

const LOG: u64 = WAL_LIMIT as u64;

/// The reserve of one directory.
pub(super) struct Reserve {
    path: PathBuf,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nobody has looked yet.
    Unknown,
    Kept,
    /// The record goes on from it.
    GivenUp,
    /// It cannot be made, and why.
    Missing(String),
}

impl Reserve {
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            path: directory.join(NAME),
            state: State::Unknown,
        }
    }

    /// Whether nothing has to be done about it.
    pub(super) fn is_kept(&self) -> bool {
        self.state == State::Kept
    }

    /// What is wrong with it, for status. While nothing changes the words do not.
    pub(super) fn fault(&self) -> Option<FaultCause> {
        let path = self.path.display();
        let (code, what) = match &self.state {
            State::Unknown | State::Kept => return None,
            State::GivenUp => (
                FaultCode::DiskFull,
                format!("{path}: the disk is full: the record goes on from its reserve"),
            ),
            State::Missing(why) => (
                FaultCode::ReserveMissing,
                format!("{path}: the record has no reserve for a full disk: {why}"),
            ),
        };
        Some(FaultCause::new(code, what))
    }

    /// Makes it where it is missing and there is room for it.
    pub(super) fn keep(&mut self, space: Space) {
        if self.state == State::Kept && self.is_whole() {
            return;
        }
        let was_given_up = self.state == State::GivenUp;
        if self.is_whole() {
            self.state = State::Kept;
        } else if space.has_spare(SIZE) {
            self.state = self.make().map_or_else(
                |error| {
                    // Half a reserve is taken from everybody and is of no use.
                    let _ = std::fs::remove_file(&self.path);
                    State::Missing(error.to_string())
                },
                |()| State::Kept,
            );
        } else if !was_given_up {
            self.state = State::Missing("there is no room for it".into());
        }
        if was_given_up && self.is_kept() {
            tell!(ReserveBack);
        }
    }

    /// Gives it up; false when there is none. `log` is the write-ahead log of
    /// the record: it gets its half at once, before others take it.
    pub(super) fn give_up(&mut self, log: &Path) -> bool {
        if std::fs::remove_file(&self.path).is_err() {
            return false;
        }
        tell!(ReserveUsed);
        self.state = State::GivenUp;
        // Blocks beyond its end are its own and no part of what it says. Where
        // they cannot be had it takes what it finds. Nobody locks this file, so
        // that closing it here takes no lock from SQLite.
        let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut open = OpenOptions::new();
        if let Ok(log) = open.write(true).custom_flags(no_follow).open(log) {
            let _ = fallocate(&log, FallocateFlags::KEEP_SIZE, 0, LOG);
        }
        true
    }

    /// Whether it is there, with all its blocks.
    fn is_whole(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|it| it.is_file() && it.len() == SIZE && it.blocks() >= SIZE / 512)
    }

    fn make(&self) -> std::io::Result<()> {
        // One that is not whole goes first.
        let _ = std::fs::remove_file(&self.path);
        let mut create = OpenOptions::new();
        create.write(true).create_new(true).mode(0o600);
        let mut file = create.open(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, SIZE) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(&mut file),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes the blocks by writing to them. They are not zeros: a file system that
/// leaves those out would keep no room.
fn fill(file: &mut File) -> std::io::Result<()> {
    const STEP: usize = 64 << 10;
    let bytes: Vec<u8> = (0..STEP)
        .map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13).to_le_bytes()[0])
        .collect();
    for _ in 0..SIZE / STEP as u64 {
        file.write_all(&bytes)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_takes_real_room_and_gives_it_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let log = directory.path().join("audit.db-wal");
        std::fs::write(&log, "log").unwrap();
        let space = Space::of(directory.path());
        // What another daemon left half made.
        std::fs::write(&path, "short").unwrap();
        let mut reserve = Reserve::of(directory.path());
        assert_eq!((reserve.is_kept(), reserve.fault()), (false, None));
        reserve.keep(space);
        assert!(reserve.is_kept());
        let made = std::fs::metadata(&path).unwrap();
        assert_eq!((made.len(), made.mode() & 0o777), (SIZE, 0o600));
        assert!(made.blocks() * 512 >= SIZE);
        reserve.keep(space);
        let kept = std::fs::metadata(&path).unwrap();
        assert_eq!(kept.ino(), made.ino(), "it is made once");

        assert!(reserve.give_up(&log));
        assert!(!path.exists());
        let log = std::fs::metadata(&log).unwrap();
        assert_eq!(log.len(), 3);
        assert!(log.blocks() * 512 >= LOG, "the log has its half");
        assert_eq!(
            reserve.fault().map(|fault| fault.what),
            Some(format!(
                "{}: the disk is full: the record goes on from its reserve",
                path.display()
            ))
        );
        assert!(!reserve.give_up(&path), "there is one");
        reserve.keep(space);
        assert_eq!((reserve.is_kept(), reserve.fault()), (true, None));
        // Somebody deletes it.
        std::fs::remove_file(&path).unwrap();
        reserve.keep(space);
        assert!(path.exists());
    }

    #[test]
    fn where_it_cannot_be_made_that_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        std::fs::create_dir(&path).unwrap();
        let mut reserve = Reserve::of(directory.path());
        reserve.keep(Space::of(directory.path()));
        let why = "the record has no reserve for a full disk: File exists (os error 17)";
        let what = reserve.fault().map(|fault| fault.what);
        assert_eq!(what, Some(format!("{}: {why}", path.display())));
        std::fs::remove_dir(&path).unwrap();
        reserve.keep(Space::of(directory.path()));
        assert_eq!(reserve.fault(), None);
    }

    #[test]
    fn a_reserve_that_is_written_is_as_whole_as_one_that_is_allocated() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(directory.path());
        let mut file = File::create(&reserve.path).unwrap();
        fill(&mut file).unwrap();
        assert!(reserve.is_whole());
    }
}
