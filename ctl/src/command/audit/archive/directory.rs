//! The directory of an archive: its lock, its manifest and its files.

use crate::archive::manifest::{MAX_MANIFEST_BYTES, Manifest, ManifestEntry, NEWER_FORMAT};
use crate::archive::{ArchiveKind, file_path};
use crate::exit::{Error, Exit, read_error_reason, system_error_reason};
use crate::output::audit::export::atomic_file::{AtomicFile, io_failure, sync_parent};
use chrono::NaiveDate;
use rustix::fs::{Advice, OFlags, fadvise};
use sha2::{Digest as _, Sha256};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The archive says what everybody ran: its group may read it, others may not. The umask narrows
/// this.
const FILE_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;

/// How to repair a manifest with a torn line.
const REPAIR_HINT: &str =
    "delete that line: the next archive writes its day again, as far as the store still has it";

/// How to compare a file with its manifest entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileCheck {
    Size,
    Hash,
}

pub(crate) struct ArchiveDirectory {
    path: PathBuf,
    host: String,
}

impl ArchiveDirectory {
    /// Opens a directory, which must exist: a missing one may be a disk that is not mounted.
    pub(in super::super) fn open(path: &Path, host: &str) -> Result<Self, Error> {
        let why = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                return Ok(Self {
                    path: path.to_owned(),
                    host: host.to_owned(),
                });
            }
            Ok(_) => "it is not a directory".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "there is no such directory".to_owned()
            }
            Err(error) => system_error_reason(&error),
        };
        let what = format!("cannot use {}: {why}", path.display());
        Err(Error::Usage(what))
    }

    /// Locks the archive of this host until the file is closed, so that two runs never write the
    /// same file. The lock file stays.
    pub(super) fn lock(&self) -> Result<File, Error> {
        let path = self.path.join(format!(".{}.lock", self.host));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options.mode(FILE_MODE).custom_flags(open_flags()?);
        let file = options.open(&path);
        let file = file.map_err(|error| io_failure(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Error::NotDone {
                what: format!("another gpukillctl archives into {}", self.path.display()),
                hint: Some("try again when it has ended".to_owned()),
                exit: Exit::Unreachable,
            }),
            Err(TryLockError::Error(error)) => Err(io_failure(&path, &error)),
        }
    }

    fn manifest_path(&self) -> PathBuf {
        self.path.join(format!("{}.manifest.ndjson", self.host))
    }

    /// Reads the manifest; it is empty if there is none.
    pub(in super::super) fn read_manifest(&self) -> Result<Manifest, Error> {
        let path = self.manifest_path();
        let wrong = |why: &str| Error::NotDone {
            what: format!("cannot read {}: {why}", path.display()),
            hint: None,
            exit: Exit::Failed,
        };
        let mut text = String::new();
        let read = open_file(&path)
            .and_then(|file| file.take(MAX_MANIFEST_BYTES + 1).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Manifest::new(&self.host)),
            Err(error) => Err(wrong(&read_error_reason(&error))),
            Ok(length) if length as u64 > MAX_MANIFEST_BYTES => {
                Err(wrong("it is longer than a manifest can be"))
            }
            Ok(_) => Manifest::parse(&text, &self.host).map_err(|why| Error::NotDone {
                hint: (!why.ends_with(NEWER_FORMAT)).then(|| REPAIR_HINT.to_owned()),
                what: format!("cannot read {}: {why}", path.display()),
                exit: Exit::Failed,
            }),
        }
    }

    /// Replaces the manifest, whole or not at all.
    pub(super) fn write_manifest(&self, manifest: &Manifest) -> Result<(), Error> {
        let path = self.manifest_path();
        let mut file = AtomicFile::create_hidden(&path, FILE_MODE)?;
        file.write(manifest.to_text().as_bytes())?;
        file.finish()?;
        sync_parent(&path).map_err(|error| io_failure(&path, &error))
    }

    pub(super) fn path(&self, kind: ArchiveKind, date: NaiveDate) -> PathBuf {
        self.path.join(file_path(kind, date, &self.host))
    }

    /// Starts a file, in directories that are made for it.
    pub(super) fn create_file(
        &self,
        kind: ArchiveKind,
        date: NaiveDate,
    ) -> Result<AtomicFile, Error> {
        let path = self.path(kind, date);
        let mut directories: Vec<&Path> = path.ancestors().skip(1).take(2).collect();
        directories.reverse();
        for directory in directories {
            match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
                Ok(()) => sync_parent(directory),
                // A link would lead out of the archive.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let is_directory = std::fs::symlink_metadata(directory)
                        .is_ok_and(|metadata| metadata.is_dir());
                    match is_directory {
                        true => Ok(()),
                        false => Err(io::ErrorKind::NotADirectory.into()),
                    }
                }
                Err(error) => Err(error),
            }
            .map_err(|error| io_failure(directory, &error))?;
        }
        AtomicFile::create_hidden(&path, FILE_MODE)
    }

    /// Compares a file with its manifest entry. The error is what is wrong with the file.
    pub(super) fn check_file(&self, entry: &ManifestEntry, check: FileCheck) -> Result<(), String> {
        let Some(expected) = &entry.file else {
            return Ok(());
        };
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => "is missing".to_owned(),
            _ => format!("cannot be read: {}", system_error_reason(&error)),
        };
        let file = open_file(&self.path(entry.kind, entry.date)).map_err(unreadable)?;
        let is_equal = match check {
            FileCheck::Size => file.metadata().map_err(unreadable)?.len() == expected.bytes,
            FileCheck::Hash => {
                let (bytes, sha256) = hash_file(file).map_err(unreadable)?;
                bytes == expected.bytes && sha256 == expected.sha256
            }
        };
        match is_equal {
            true => Ok(()),
            false => Err("is not the archived file".to_owned()),
        }
    }
}

fn open_flags() -> io::Result<i32> {
    // Follow no link, and do not wait for the other end of a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    i32::try_from(flags.bits()).map_err(io::Error::other)
}

fn open_file(path: &Path) -> io::Result<File> {
    let flags = open_flags()?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}

/// Drops the pages of a synced file from memory, so that the next reader reads the disk.
pub(super) fn drop_cache(file: &File) {
    // Without this the next reader reads memory, which is a weaker check and no error.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// The length and the SHA-256 of a file.
pub(super) fn hash_file(mut file: File) -> io::Result<(u64, String)> {
    file.rewind()?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((length, format!("{:x}", hasher.finalize()))),
            Ok(count) => {
                hasher.update(buffer.get(..count).unwrap_or_default());
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::manifest::ArchivedFile;
    use gpukill_proto::units::Timestamp;

    fn date() -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 11, 1).unwrap()
    }

    fn archived(path: &Path) -> (ArchiveDirectory, ManifestEntry) {
        let archive = ArchiveDirectory::open(path, "box").unwrap();
        let kind = ArchiveKind::Devices;
        let mut file = archive.create_file(kind, date()).unwrap();
        file.write(b"abc").unwrap();
        file.finish().unwrap();
        let entry = ManifestEntry {
            kind,
            date: date(),
            since: Timestamp(0),
            until: Timestamp(10),
            file: Some(ArchivedFile {
                rows: 1,
                bytes: 3,
                sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
                oldest: Timestamp(1),
                newest: Timestamp(1),
                with_commands: false,
            }),
        };
        (archive, entry)
    }

    #[test]
    fn changed_file_does_not_match_its_entry() {
        let directory = tempfile::tempdir().unwrap();
        let (archive, entry) = archived(directory.path());
        let path = archive.path(entry.kind, entry.date);
        let check = |check| archive.check_file(&entry, check);
        assert_eq!(check(FileCheck::Hash), Ok(()));
        let other = Err("is not the archived file".to_owned());
        std::fs::write(&path, "abd").unwrap();
        assert_eq!(check(FileCheck::Size), Ok(()));
        assert_eq!(check(FileCheck::Hash), other);
        std::fs::write(&path, "abcd").unwrap();
        assert_eq!(check(FileCheck::Size), other);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(check(FileCheck::Size), Err("is missing".to_owned()));
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(check(FileCheck::Size).is_err());
        let empty = ManifestEntry {
            file: None,
            ..entry
        };
        assert_eq!(archive.check_file(&empty, FileCheck::Hash), Ok(()));
    }

    #[test]
    fn manifest_is_read_back_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let (archive, entry) = archived(directory.path());
        let none = archive.read_manifest().unwrap();
        assert_eq!(none, Manifest::new("box"));
        let mut manifest = none;
        manifest.insert(entry);
        archive.write_manifest(&manifest).unwrap();
        assert_eq!(archive.read_manifest().unwrap(), manifest);
        let path = archive.manifest_path();
        let huge = File::create(&path).unwrap();
        huge.set_len(1 << 40).unwrap();
        let refused = archive.read_manifest().unwrap_err().to_string();
        let why = "it is longer than a manifest can be";
        assert_eq!(refused, format!("cannot read {}: {why}", path.display()));
        std::fs::write(&path, "{}\n").unwrap();
        assert!(archive.read_manifest().is_err());
    }

    #[test]
    fn one_run_at_a_time_for_each_host() {
        let directory = tempfile::tempdir().unwrap();
        let open = |host| ArchiveDirectory::open(directory.path(), host).unwrap();
        let first = open("box").lock().unwrap();
        let refused = open("box").lock().unwrap_err();
        assert_eq!(refused.exit_code(), Exit::Unreachable);
        open("other").lock().unwrap();
        drop(first);
        open("box").lock().unwrap();
    }

    #[test]
    fn missing_directory_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none");
        let refused = ArchiveDirectory::open(&path, "box").err().unwrap();
        assert_eq!(refused.exit_code(), Exit::BadUsage);
        assert!(!path.exists());
    }
}
