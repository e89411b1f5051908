//! The file of processes that a kill has stopped. A daemon that is killed meanwhile resumes none of
//! them, and the next daemon does. The writes are not synced: the page cache outlives the daemon,
//! and no process stays stopped over a reboot.

use crate::config::{OTHERS_WRITE, foreign_writer_reason};
use gpukill_proto::model::ProcessKey;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file name, in the daemon's own directory.
const FILE_NAME: &str = "stopped";

/// The bytes of one entry with its line end: a PID, a space, and ticks since boot, both at their
/// greatest length.
const ENTRY_BYTES: usize = 32;

/// How much of a file is read: half a million entries.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The open file, or none where it does not work. Each entry has its position.
#[derive(Debug, Default)]
pub(super) struct StoppedFile {
    file: Option<File>,
    /// The offset of the first entry.
    first_offset: u64,
    has_failed: AtomicBool,
}

impl StoppedFile {
    /// Opens the file in this directory without changing it, unless another user may have written
    /// it: then it is replaced by an empty one.
    ///
    /// # Errors
    /// When it cannot be opened, or is no regular file: it is emptied soon.
    pub(super) fn open(directory: &Path) -> io::Result<File> {
        // In a directory that others can write to, a symbolic link could point anywhere, and
        // reading a FIFO to its end could block forever.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = directory.join(FILE_NAME);
        if let Ok(metadata) = name.symlink_metadata()
            && metadata.is_file()
            && let Some(why) = foreign_writer_reason(&metadata, OTHERS_WRITE)
        {
            tracing::error!(
                file = %name.display(), why,
                "not used: processes that an interrupted kill left stopped stay so"
            );
            std::fs::remove_file(&name)?;
        }
        let file = rustix::fs::open(&name, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o600))?;
        let file = File::from(file);
        if !file.metadata()?.is_file() {
            let why = format!("{} is not a regular file", name.display());
            return Err(io::Error::other(why));
        }
        Ok(file)
    }

    /// Empties the file, for this boot.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn start_empty(mut file: File, boot: &str) -> io::Result<Self> {
        let heading = heading(boot);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(heading.as_bytes())?;
        Ok(Self {
            file: Some(file),
            first_offset: heading.len() as u64,
            has_failed: AtomicBool::new(false),
        })
    }

    /// Writes an entry at this position. A kill continues where that fails.
    pub(super) fn write(&self, position: u64, key: ProcessKey) {
        let ProcessKey { pid, start_ticks } = key;
        self.write_line(position, &format!("{pid:>10} {start_ticks:>20}\n"));
    }

    pub(super) fn clear(&self, position: u64) {
        self.write_line(position, &format!("{:>1$}", "\n", ENTRY_BYTES));
    }

    pub(super) fn clear_all(&self) {
        self.log_new_failure(
            self.file
                .as_ref()
                .map(|file| file.set_len(self.first_offset)),
        );
    }

    fn write_line(&self, position: u64, line: &str) {
        let at = self.first_offset + position * ENTRY_BYTES as u64;
        let file = self.file.as_ref();
        self.log_new_failure(file.map(|file| file.write_all_at(line.as_bytes(), at)));
    }

    /// Logs the first of several failures in a row.
    fn log_new_failure(&self, done: Option<io::Result<()>>) {
        let error = done.and_then(Result::err);
        let was_broken = self.has_failed.swap(error.is_some(), Ordering::Relaxed);
        if let Some(error) = error.filter(|_| !was_broken) {
            tracing::error!(%error, "cannot record the processes that kills stop");
        }
    }
}

/// The header, which names the boot of all entries.
fn heading(boot: &str) -> String {
    format!("stopped by gpukilld, version 1, boot {boot}\n")
}

/// The processes in a file of this boot; none where the file is of another boot.
///
/// # Errors
/// When it cannot be read.
pub(super) fn read_entries(file: &File, boot: &str) -> io::Result<Vec<ProcessKey>> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    let entries = bytes.strip_prefix(heading(boot).as_bytes());
    let entries = entries.unwrap_or_default().chunks_exact(ENTRY_BYTES);
    Ok(entries.filter_map(parse_entry).collect())
}

/// Parses an entry. A position that was never written is all zeros.
fn parse_entry(entry: &[u8]) -> Option<ProcessKey> {
    let text = std::str::from_utf8(entry).ok()?.strip_suffix('\n')?;
    let (pid, start_ticks) = text.trim_start().split_once(' ')?;
    Some(ProcessKey {
        pid: pid.parse().ok()?,
        start_ticks: start_ticks.trim_start().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn key(pid: u32, start_ticks: u64) -> ProcessKey {
        ProcessKey { pid, start_ticks }
    }

    fn left_in(directory: &Path, boot: &str) -> Vec<ProcessKey> {
        read_entries(&StoppedFile::open(directory).unwrap(), boot).unwrap()
    }

    #[test]
    fn keeps_uncleared_entries_of_the_boot() {
        let directory = tempfile::tempdir().unwrap();
        let file = StoppedFile::open(directory.path()).unwrap();
        let note = StoppedFile::start_empty(file, "boot-1").unwrap();
        let longest = key(u32::MAX, u64::MAX);
        note.write(3, longest);
        note.write(0, key(7, 70));
        note.write(1, key(8, 80));
        note.clear(0);
        assert_eq!(left_in(directory.path(), "boot-1"), [key(8, 80), longest]);
        assert_eq!(left_in(directory.path(), "boot-2"), []);
        note.write(0, key(9, 90));
        let all = [key(9, 90), key(8, 80), longest];
        assert_eq!(left_in(directory.path(), "boot-1"), all);
        note.clear_all();
        assert_eq!(left_in(directory.path(), "boot-1"), []);
        note.write(2, longest);
        assert_eq!(left_in(directory.path(), "boot-1"), [longest]);
        let file = StoppedFile::open(directory.path()).unwrap();
        StoppedFile::start_empty(file, "boot-1").unwrap();
        assert_eq!(left_in(directory.path(), "boot-1"), []);
    }

    #[test]
    fn entries_of_another_user_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join(FILE_NAME);
        for mode in [0o666, 0o600] {
            let file = StoppedFile::open(directory.path()).unwrap();
            let note = StoppedFile::start_empty(file, "boot").unwrap();
            note.write(0, key(7, 70));
            std::fs::set_permissions(&name, PermissionsExt::from_mode(mode)).unwrap();
            let expected = if mode == 0o600 {
                vec![key(7, 70)]
            } else {
                vec![]
            };
            assert_eq!(left_in(directory.path(), "boot"), expected);
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a file to others");
            return;
        }
        std::os::unix::fs::chown(&name, Some(65_534), None).unwrap();
        assert_eq!(left_in(directory.path(), "boot"), []);
    }

    #[test]
    fn ignores_damaged_entries() {
        for entry in [
            "         7                   70",
            "         7                  70",
            "                             70\n",
            "         7                     \n",
            "        -7                   70\n",
            "         7 70                 0\n",
        ] {
            assert_eq!(parse_entry(entry.as_bytes()), None, "{entry:?}");
        }
    }

    #[test]
    fn rejects_non_regular_files() {
        let directory = tempfile::tempdir().unwrap();
        let (name, others) = (
            directory.path().join(FILE_NAME),
            directory.path().join("others"),
        );
        std::fs::write(&others, "precious").unwrap();
        std::os::unix::fs::symlink(&others, &name).unwrap();
        assert!(StoppedFile::open(directory.path()).is_err());
        assert_eq!(std::fs::read_to_string(&others).unwrap(), "precious");
        std::fs::remove_file(&name).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(StoppedFile::open(directory.path()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let directory = tempfile::tempdir().unwrap();
            let whole = [heading("boot").into_bytes(), bytes].concat();
            std::fs::write(directory.path().join(FILE_NAME), whole).unwrap();
            left_in(directory.path(), "boot");
        }
    }
}
