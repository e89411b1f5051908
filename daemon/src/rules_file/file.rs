//! The admin's file of rules: read whole, and replaced whole.

mod directory;

use crate::config::{OTHERS_WRITE, is_others};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file of rules is some kilobytes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// What the file says; nothing where there is none.
///
/// # Errors
/// When it is there and cannot be read, is a link to nothing or below one, is no file,
/// others may write it, is longer than [`LONGEST`] or no text.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    read_at_most(path, LONGEST)
}

/// As [`read`], of another length.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_at_most(path: &Path, longest: u64) -> Result<Option<String>> {
    // A pipe would never end, or never begin.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return nothing_at(path).map(|()| None),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::other("it is no file"));
    }
    if let Some(why) = is_others(&metadata, OTHERS_WRITE) {
        return Err(Error::new(ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.take(longest + 1).read_to_string(&mut text)?;
    if text.len() as u64 > longest {
        let what = format!("it is longer than {longest} bytes");
        return Err(Error::other(what));
    }
    Ok(Some(text))
}

/// That nothing was written, and not something where we see nothing, as in a home that
/// is hidden from us: neither it nor a directory around it is a link to there.
fn nothing_at(path: &Path) -> Result<()> {
    let link = path
        .ancestors()
        .find_map(|at| Some((at, std::fs::read_link(at).ok()?)).filter(|_| !at.exists()));
    let Some((at, leads_to)) = link else {
        return Ok(());
    };
    let (what, leads_to) = (
        if at == path { "it" } else { "its directory" },
        leads_to.display(),
    );
    Err(Error::new(
        ErrorKind::NotFound,
        format!(
            "{what} is a link to {leads_to}, where gpukilld sees nothing: make that where it \
             does, or remove the link"
        ),
    ))
}

/// How safe a file is that was put in its place.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It is on the disk.
    ForGood,
    /// It is there, and whether that is on the disk is not known: when the power fails,
    /// what it was may be back.
    WhilePowered(Error),
}

/// Puts `text` in the place of what the file said, at once and for good: whoever
/// reads sees the one or the other, whatever happens meanwhile. A link stays one. Where
/// its directory is not there yet, that is made, and the one around it; no more.
///
/// # Errors
/// When it cannot be written; then it is as it was.
pub(crate) fn replace(path: &Path, text: &str) -> Result<Kept> {
    replace_and(path, text, sync)
}

fn replace_and(path: &Path, text: &str, sync: Syncing) -> Result<Kept> {
    let target = target(path)?;
    let directory = directory_of(&target);
    if directory.exists() {
        return put(&target, text, 0o644, sync);
    }
    if target != path {
        // Who wrote the link says where rules lie, and may have meant another place.
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "it is a link to {}, and there is no such directory: mkdir -p {}",
                target.display(),
                directory.display()
            ),
        ));
    }
    directory::make(directory)?;
    let put = put(&target, text, 0o644, sync);
    if put.is_err() {
        // It is empty; the error that counts is the first.
        let _ = std::fs::remove_dir(directory);
    }
    put
}

fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// The same for a file of the daemon's own, which nobody else may read, and which is
/// no link.
///
/// # Errors
/// As [`replace`], and when it is not known to be on the disk.
pub(crate) fn replace_private(path: &Path, text: &str) -> Result<()> {
    match put(path, text, 0o600, sync)? {
        Kept::ForGood => Ok(()),
        Kept::WhilePowered(error) => Err(error),
    }
}

/// Has the disk keep what a directory says.
type Syncing = fn(&Path) -> Result<()>;

fn sync(directory: &Path) -> Result<()> {
    File::open(directory)?.sync_all()
}

fn put(path: &Path, text: &str, usual_mode: u32, sync: Syncing) -> Result<Kept> {
    let directory = directory_of(path);
    let before = path.metadata().ok();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = directory.join(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write(&new, text, before.as_ref(), usual_mode);
    let replaced = written.and_then(|()| std::fs::rename(&new, path));
    if replaced.is_err() {
        // It is of no use to anybody; the error that counts is the first.
        let _ = std::fs::remove_file(&new);
    }
    replaced?;
    // It is in its place, whatever the disk says now.
    Ok(match sync(directory) {
        Ok(()) => Kept::ForGood,
        Err(error) => Kept::WhilePowered(error),
    })
}

/// So many links may lead to each other: as many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Where a link leads, however many; also to where nothing is yet.
fn target(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match std::fs::canonicalize(&target) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
        match std::fs::read_link(&target) {
            // From the directory that it lies in.
            Ok(leads_to) => target = target.parent().unwrap_or(Path::new("")).join(leads_to),
            Err(_) => return Ok(target),
        }
    }
    Err(Error::other("it is a link without end"))
}

fn write(new: &Path, text: &str, before: Option<&Metadata>, usual_mode: u32) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = before.map_or(usual_mode, |before| before.permissions().mode() & 0o777);
    let mut file = File::from(rustix::fs::open(new, flags, Mode::from_raw_mode(mode))?);
    // What the umask took away.
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    if let Some(before) = before {
        let (uid, gid) = (before.uid(), before.gid());
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            // Only root may; whoever may not leaves it theirs.
            let _ = std::os::unix::fs::fchown(&file, Some(uid), Some(gid));
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        // What an edit left that was broken off.
        std::fs::write(directory.path().join("guard.toml.new"), "half").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        let names: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["guard.toml"]);
    }

    #[test]
    fn what_is_in_its_place_is_no_error_though_the_disk_may_not_keep_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        assert!(matches!(replace(&path, "one").unwrap(), Kept::ForGood));
        let kept = replace_and(&path, "two", |_| Err(Error::other("no room")));
        match kept.unwrap() {
            Kept::WhilePowered(error) => assert_eq!(error.to_string(), "no room"),
            Kept::ForGood => panic!("nobody can know that"),
        }
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
    }

    #[test]
    fn what_others_may_write_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        replace(&path, "one").unwrap();
        for mode in [0o666, 0o664, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("one"));
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a file to others");
            return;
        }
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.to_string(), "it belongs to uid 65534: chown root it");
    }

    #[test]
    fn a_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (
            directory.path().join("guard.toml"),
            directory.path().join("elsewhere.toml"),
        );
        std::fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "two").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
    }

    #[test]
    fn a_link_to_where_nothing_is_yet_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere/link.toml", at("guard.toml")).unwrap();
        std::os::unix::fs::symlink("rules.toml", at("elsewhere/link.toml")).unwrap();
        replace(&at("guard.toml"), "two").unwrap();
        assert!(at("guard.toml").symlink_metadata().unwrap().is_symlink());
        assert_eq!(read(&at("guard.toml")).unwrap().as_deref(), Some("two"));
        let written = std::fs::read_to_string(at("elsewhere/rules.toml"));
        assert_eq!(written.unwrap(), "two");
        // One that leads into nothing is an error, and stays as it was.
        std::fs::remove_dir_all(at("elsewhere")).unwrap();
        std::fs::remove_file(at("guard.toml")).unwrap();
        std::os::unix::fs::symlink("elsewhere/rules.toml", at("guard.toml")).unwrap();
        let error = replace(&at("guard.toml"), "three").unwrap_err();
        let elsewhere = at("elsewhere").display().to_string();
        assert_eq!(
            error.to_string(),
            format!(
                "it is a link to {elsewhere}/rules.toml, and there is no such directory: \
                 mkdir -p {elsewhere}"
            )
        );
        assert!(!at("elsewhere").exists());
        assert!(at("guard.toml").symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn a_link_to_where_nothing_is_seen_is_not_taken_for_no_rules() {
        let directory = tempfile::tempdir().unwrap();
        let [file, rules] = ["guard.toml", "rules"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink("/root/none/guard.toml", &file).unwrap();
        std::os::unix::fs::symlink("/root/none", &rules).unwrap();
        for (path, what) in [
            (file, "it is a link to /root/none/guard.toml"),
            (
                rules.join("guard.toml"),
                "its directory is a link to /root/none",
            ),
        ] {
            let error = read(&path).unwrap_err();
            let rest = "where gpukilld sees nothing: make that where it does, or remove the link";
            assert_eq!(error.to_string(), format!("{what}, {rest}"));
        }
        // A directory that is there, by a link, and has no rules.
        let linked = directory.path().join("linked");
        std::os::unix::fs::symlink(".", &linked).unwrap();
        assert_eq!(read(&linked.join("none.toml")).unwrap(), None);
    }

    #[test]
    fn what_is_no_file_of_ours_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.toml");
        std::fs::create_dir(&path).unwrap();
        read(&path).unwrap_err();
        replace(&path, "two").unwrap_err();
        assert!(path.is_dir());
        std::fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let long = vec![b' '; usize::try_from(LONGEST).unwrap() + 1];
        std::fs::write(&path, long).unwrap();
        read(&path).unwrap_err();
        std::fs::write(&path, [0xff]).unwrap();
        read(&path).unwrap_err();
    }
}
