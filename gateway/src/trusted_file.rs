//! Files that decide what the gateway does, and secrets: no other user may have written them, and
//! not every user may read a secret.
//!
//! A credential of systemd passes, as each version of systemd makes it: a file of the unit's user
//! with the mode 0400, or of root with the mode 0440, where the group bits are those of the ACL for that
//! user.

use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The longest file, in bytes: settings, a chain of certificates, or hundreds of tokens.
const MAX_BYTES: u64 = 256 << 10;

/// The mode bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The mode bit that lets every user read.
const ALL_READ: u32 = 0o004;

/// Tells two contents of a path apart without reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of the file at this path; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|it| Self::new(&it))
    }

    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            // Changes also with owner and mode.
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Whether every user may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// Every user may.
    Public,
    /// Only the owner and a group may.
    Secret,
}

/// Reads a regular file that only its owner may write: root, or the user of the gateway.
///
/// # Errors
/// `NotFound` if there is none; else why it cannot be read, or is not trusted.
pub(crate) fn read(path: &Path, secrecy: Secrecy) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    if let Some(why) = distrust_reason(&metadata, secrecy) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Reads a file as [`read`] does, and converts it to text.
///
/// # Errors
/// As [`read`], and if the file is not UTF-8.
pub(crate) fn read_text(path: &Path, secrecy: Secrecy) -> io::Result<String> {
    let bytes = read(path, secrecy)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Opens a file. A pipe that nobody writes must not block.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn distrust_reason(metadata: &Metadata, secrecy: Secrecy) -> Option<String> {
    let owner = metadata.uid();
    let mode = metadata.mode();
    if !metadata.is_file() {
        return Some("it is not a regular file".into());
    }
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Some(format!(
            "it belongs to uid {owner}: change its owner to root"
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Some("users other than its owner may write it: chmod go-w FILE".into());
    }
    let is_readable = secrecy == Secrecy::Secret && mode & ALL_READ != 0;
    is_readable.then(|| "every user may read it: chmod o-r FILE".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn file_that_others_may_write_or_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let why = |secrecy| read(&path, secrecy).map_err(|error| error.to_string());
        assert_eq!(FileStamp::read(&path), None);
        let missing = read(&path, Secrecy::Public).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "text").unwrap();
        for (mode, public, secret) in [
            (0o600, Ok(b"text".to_vec()), Ok(b"text".to_vec())),
            (0o640, Ok(b"text".to_vec()), Ok(b"text".to_vec())),
            // Credentials of systemd.
            (0o400, Ok(b"text".to_vec()), Ok(b"text".to_vec())),
            (0o440, Ok(b"text".to_vec()), Ok(b"text".to_vec())),
            (
                0o644,
                Ok(b"text".to_vec()),
                Err("every user may read it: chmod o-r FILE".to_owned()),
            ),
            (
                0o660,
                Err("users other than its owner may write it: chmod go-w FILE".to_owned()),
                Err("users other than its owner may write it: chmod go-w FILE".to_owned()),
            ),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(why(Secrecy::Public), public, "{mode:o}");
            assert_eq!(why(Secrecy::Secret), secret, "{mode:o}");
        }
    }

    #[test]
    fn file_of_another_kind_or_user_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |path: &Path| read(path, Secrecy::Public).unwrap_err().to_string();
        let pipe = directory.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        for path in [&*pipe, directory.path(), Path::new("/dev/null")] {
            assert_eq!(
                refused(path),
                "it is not a regular file",
                "{}",
                path.display()
            );
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a file to others");
            return;
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        let expected = "it belongs to uid 65534: change its owner to root";
        assert_eq!(refused(&file), expected);
    }

    #[test]
    fn text_is_utf_8() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (bytes, expected) in [(&b"\xc3\xa9"[..], Some("é")), (b"\xc3", None)] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let text = read_text(&path, Secrecy::Secret).ok();
            assert_eq!(text.as_deref(), expected);
        }
    }

    #[test]
    fn long_file_is_refused_and_a_new_one_has_another_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![b'#'; 300 << 10]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let long = read(&path, Secrecy::Public).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::FileTooLarge);
        let stamp = FileStamp::read(&path);
        assert_eq!(stamp, FileStamp::read(&path));
        std::fs::write(directory.path().join("new"), "x").unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        assert_ne!(stamp, FileStamp::read(&path));
    }
}
