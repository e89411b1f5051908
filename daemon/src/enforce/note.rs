//! Who is stopped by a kill now, in a file: a daemon that is killed in the middle
//! of it lets nobody go on, and the next one does. Nothing waits for the disk, since
//! what the kernel has outlives the daemon, and nobody is stopped in another boot.

use gpukill_proto::snapshot::ProcessKey;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file, in the daemon's own directory.
const FILE: &str = "stopped";

/// One name takes so many bytes, the end of its line included: a pid, a space, and
/// ticks since the box was started, both as long as they can be.
const PLACE: usize = 32;

/// As much of a file is read: half a million names.
const MOST: u64 = 16 << 20;

/// The file, open; or none, where it does not work. Each name has its place.
#[derive(Debug, Default)]
pub(super) struct Note {
    file: Option<File>,
    /// Where the first place begins.
    first: u64,
    is_broken: AtomicBool,
}

impl Note {
    /// Opens the one in this directory, as it was left.
    ///
    /// # Errors
    /// When it cannot be, or is no file of its own: it is emptied soon.
    pub(super) fn open(directory: &Path) -> io::Result<File> {
        // In a directory open to others a symbolic link could point anywhere, and
        // nobody may ever write to a FIFO that is read to its end.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = directory.join(FILE);
        let file = rustix::fs::open(&name, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o600))?;
        let file = File::from(file);
        if !file.metadata()?.is_file() {
            let why = format!("{} is no file", name.display());
            return Err(io::Error::other(why));
        }
        Ok(file)
    }

    /// Empties it, for this boot of the box.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn begin(mut file: File, boot: &str) -> io::Result<Self> {
        let heading = heading(boot);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(heading.as_bytes())?;
        Ok(Self {
            file: Some(file),
            first: heading.len() as u64,
            is_broken: AtomicBool::new(false),
        })
    }

    /// Writes a name at this place. A kill goes on where that fails.
    pub(super) fn write(&self, place: u64, key: ProcessKey) {
        let ProcessKey { pid, start_ticks } = key;
        self.put(place, &format!("{pid:>10} {start_ticks:>20}\n"));
    }

    /// Leaves this place empty.
    pub(super) fn clear(&self, place: u64) {
        self.put(place, &format!("{:>1$}", "\n", PLACE));
    }

    /// Leaves all of them empty.
    pub(super) fn clear_all(&self) {
        self.told(self.file.as_ref().map(|file| file.set_len(self.first)));
    }

    fn put(&self, place: u64, line: &str) {
        let at = self.first + place * PLACE as u64;
        let file = self.file.as_ref();
        self.told(file.map(|file| file.write_all_at(line.as_bytes(), at)));
    }

    /// Says once that it does not work.
    fn told(&self, done: Option<io::Result<()>>) {
        let error = done.and_then(Result::err);
        let was_broken = self.is_broken.swap(error.is_some(), Ordering::Relaxed);
        if let Some(error) = error.filter(|_| !was_broken) {
            tracing::error!(%error, "whom a kill stops cannot be noted");
        }
    }
}

/// Names the version of the form, and the boot in which the processes were stopped.
fn heading(boot: &str) -> String {
    format!("stopped by gpukilld, version 1, boot {boot}\n")
}

/// Whom a file of this boot names; nobody where it is of another one.
///
/// # Errors
/// When it cannot be read.
pub(super) fn left(file: &File, boot: &str) -> io::Result<Vec<ProcessKey>> {
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    let places = bytes.strip_prefix(heading(boot).as_bytes());
    let places = places.unwrap_or_default().chunks_exact(PLACE);
    Ok(places.filter_map(name).collect())
}

/// The name at a place, if there is one: a place that was never written is zeros.
fn name(place: &[u8]) -> Option<ProcessKey> {
    let text = std::str::from_utf8(place).ok()?.strip_suffix('\n')?;
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

    fn key(pid: u32, start_ticks: u64) -> ProcessKey {
        ProcessKey { pid, start_ticks }
    }

    fn left_in(directory: &Path, boot: &str) -> Vec<ProcessKey> {
        left(&Note::open(directory).unwrap(), boot).unwrap()
    }

    #[test]
    fn who_was_written_and_not_cleared_is_left_to_the_next_one_of_the_same_boot() {
        let directory = tempfile::tempdir().unwrap();
        let file = Note::open(directory.path()).unwrap();
        let note = Note::begin(file, "boot-1").unwrap();
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
        let file = Note::open(directory.path()).unwrap();
        Note::begin(file, "boot-1").unwrap();
        assert_eq!(left_in(directory.path(), "boot-1"), []);
    }

    #[test]
    fn what_was_cut_off_or_written_by_others_names_nobody() {
        for place in [
            "         7                   70",
            "         7                  70",
            "                             70\n",
            "         7                     \n",
            "        -7                   70\n",
            "         7 70                 0\n",
        ] {
            assert_eq!(name(place.as_bytes()), None, "{place:?}");
        }
    }

    #[test]
    fn what_is_no_file_of_its_own_is_neither_emptied_nor_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let (name, others) = (directory.path().join(FILE), directory.path().join("others"));
        std::fs::write(&others, "precious").unwrap();
        std::os::unix::fs::symlink(&others, &name).unwrap();
        assert!(Note::open(directory.path()).is_err());
        assert_eq!(std::fs::read_to_string(&others).unwrap(), "precious");
        std::fs::remove_file(&name).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(Note::open(directory.path()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let directory = tempfile::tempdir().unwrap();
            let whole = [heading("boot").into_bytes(), bytes].concat();
            std::fs::write(directory.path().join(FILE), whole).unwrap();
            left_in(directory.path(), "boot");
        }
    }
}
