//! A file that others chose the place of: opened without following links and
//! without waiting, and read only so far.

use gpukill_proto::text::visible;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

/// More of a file than this is not read. Docker's are some KiB, lists of
/// containers some hundred bytes for each.
const LONGEST: u64 = 1 << 20;

/// Whose files are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// They lie where only root writes.
    Anybodys,
    /// Only this user's: a link to another's must tell nothing of it.
    Users(u32),
}

/// Why there is no text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// There is no such file.
    Absent,
    /// There is one, and it is not read for this reason.
    Unusable(String),
}

/// The text of a file so far below a directory. The way to the directory may
/// have links, for that the admin made it; below there may be none.
pub(super) fn read(directory: &Path, below: &[String], whose: Whose) -> Result<String, Missing> {
    let Some((name, between)) = below.split_last() else {
        return Err(Missing::Absent);
    };
    let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, directory, on_the_way, Mode::empty()).map_err(missing)?;
    for part in between {
        let deeper = on_the_way | OFlags::NOFOLLOW;
        at = openat(&at, part.as_str(), deeper, Mode::empty()).map_err(missing)?;
    }
    // A FIFO would be waited for, a terminal would become ours.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | OFlags::CLOEXEC;
    let file = openat(&at, name.as_str(), flags, Mode::empty()).map_err(missing)?;
    text_of(file, name, whose)
}

fn text_of(file: OwnedFd, name: &str, whose: Whose) -> Result<String, Missing> {
    let unusable = |why: &str| Missing::Unusable(format!("{name} {why}"));
    let stat = fstat(&file).map_err(missing)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(unusable("is no regular file"));
    }
    match whose {
        Whose::Users(uid) if stat.st_uid != uid => {
            return Err(unusable("belongs to somebody else"));
        }
        Whose::Users(_) | Whose::Anybodys => {}
    }
    let mut text = String::new();
    let read = File::from(file).take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|_| unusable("cannot be read as text"))?;
    if text.len() as u64 > LONGEST {
        return Err(unusable("is longer than 1 MiB"));
    }
    Ok(text)
}

fn missing(error: Errno) -> Missing {
    match error {
        Errno::NOENT => Missing::Absent,
        Errno::ACCESS | Errno::PERM => Missing::Unusable("not permitted".into()),
        // What O_NOFOLLOW and O_DIRECTORY answer to a link.
        Errno::LOOP | Errno::NOTDIR => Missing::Unusable("a link is in its way".into()),
        other => {
            let why = std::io::Error::from(other).to_string();
            Missing::Unusable(visible(why.as_bytes(), 80))
        }
    }
}
