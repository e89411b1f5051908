//! The directory of the file of rules, made where there is none: where nobody else could
//! have a hand in it, now or later.

use crate::config::{OTHERS_WRITE, STICKY, parent};
use std::fs::{File, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Whoever may write may let others read.
const MODE: u32 = 0o755;

/// The kernel follows this many links on one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// That of whoever settings belong to: what the XDG Base Directory Specification has for
/// one that is not there when something is written into it.
const PRIVATE: u32 = 0o700;

/// Makes this directory, which then belongs to whoever this runs as, and which others may
/// only read; and the one around it where that is not there either, as ~/.config of
/// somebody new. More that is missing is a slip in the path.
///
/// # Errors
/// When the one around both is not there, others could put another in its place, or
/// the disk refuses.
pub(super) fn make(directory: &Path) -> Result<()> {
    let around = parent(directory);
    if around.exists() {
        return make_one(directory, around, MODE);
    }
    let beyond = parent(around);
    if !beyond.exists() {
        let (beyond, directory) = (beyond.display(), directory.display());
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no directory {beyond}: mkdir -p {directory}"),
        ));
    }
    make_one(around, beyond, PRIVATE)?;
    make_one(directory, around, MODE)
}

/// Makes one directory in `around`.
fn make_one(directory: &Path, around: &Path, mode: u32) -> Result<()> {
    let mut links = MAX_LINKS;
    must_be_ours(&std::path::absolute(around)?, &mut links)?;
    std::fs::DirBuilder::new().mode(mode).create(directory)?;
    // What the umask took away, or the directory around it gave.
    std::fs::set_permissions(directory, Permissions::from_mode(mode))?;
    File::open(around)?.sync_all()
}

/// Nobody but us and root may change what this path leads to: each directory on
/// the way belongs to one of the two, and only they write into it; so does each link.
///
/// # Errors
/// Where that is not so.
fn must_be_ours(path: &Path, links: &mut usize) -> Result<()> {
    let mut at = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => at = at.canonicalize()?.join(".."),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::Normal(_) => at.push(part),
        }
        let metadata = at.symlink_metadata()?;
        let refused = |why: String| {
            let at = at.display();
            Err(Error::new(
                ErrorKind::PermissionDenied,
                format!("its directory is not there, and is not made in {at}: {why}"),
            ))
        };
        let owner = metadata.uid();
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return refused(format!("that belongs to uid {owner}"));
        }
        if metadata.is_symlink() {
            let Some(left) = links.checked_sub(1) else {
                return refused("it is a link without end".into());
            };
            *links = left;
            let leads_to = parent(&at).join(std::fs::read_link(&at)?);
            must_be_ours(&leads_to, links)?;
        } else if metadata.mode() & OTHERS_WRITE != 0 && metadata.mode() & STICKY == 0 {
            return refused("others than its owner may write there".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{read, replace};
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_edit_makes_the_directory_of_the_rules() {
        let around = tempfile::tempdir().unwrap();
        let directory = around.path().join("gpukill");
        // What is made in it belongs to its group, which the new one does not pass on.
        mode(around.path(), 0o2755);
        replace(&directory.join("guard.toml"), "one").unwrap();
        assert_eq!(
            read(&directory.join("guard.toml")).unwrap().as_deref(),
            Some("one")
        );
        let metadata = directory.symlink_metadata().unwrap();
        assert!(metadata.is_dir());
        assert_eq!(metadata.mode() & 0o7777, 0o755);
        assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn the_one_around_it_is_made_too_and_no_more() {
        let around = tempfile::tempdir().unwrap();
        let file = around.path().join("a/b/c/guard.toml");
        let at = around.path().display();
        assert_eq!(
            replace(&file, "one").unwrap_err().to_string(),
            format!("there is no directory {at}/a: mkdir -p {at}/a/b/c")
        );
        assert!(!around.path().join("a").exists());
        // Of whoever has no ~/.config yet.
        let config = around.path().join(".config");
        replace(&config.join("gpukill/guard.toml"), "one").unwrap();
        let modes = [config.clone(), config.join("gpukill")];
        let modes = modes.map(|it| it.metadata().unwrap().mode() & 0o7777);
        assert_eq!(modes, [0o700, 0o755]);
    }

    #[test]
    fn none_is_made_where_others_could_put_another() {
        let around = tempfile::tempdir().unwrap();
        let open = around.path().join("open");
        std::fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        let told = format!(
            "its directory is not there, and is not made in {}: others than its owner may write \
             there",
            open.display()
        );
        let refused = |path: &Path| {
            let error = replace(&path.join("gpukill/guard.toml"), "one").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            error.to_string()
        };
        assert_eq!(refused(&open), told);
        // Nor by links that lie there, or that lead there.
        let ours = around.path().join("ours");
        std::fs::create_dir(&ours).unwrap();
        symlink(&ours, open.join("link")).unwrap();
        assert_eq!(refused(&open.join("link")), told);
        symlink("open/link", around.path().join("chain")).unwrap();
        assert_eq!(refused(&around.path().join("chain")), told);
        assert_eq!(std::fs::read_dir(&ours).unwrap().count(), 0);
        // Where only the owner of each may rename it nobody else can.
        mode(&open, 0o1777);
        replace(&open.join("link/gpukill/guard.toml"), "one").unwrap();
        assert!(ours.join("gpukill/guard.toml").is_file());
    }

    #[test]
    fn none_is_made_through_what_belongs_to_another() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a directory to others");
            return;
        }
        let around = tempfile::tempdir().unwrap();
        let (theirs, link) = (around.path().join("theirs"), around.path().join("link"));
        std::fs::create_dir(&theirs).unwrap();
        symlink(around.path(), &link).unwrap();
        for path in [&theirs, &link] {
            std::os::unix::fs::lchown(path, Some(65_534), None).unwrap();
            let error = replace(&path.join("gpukill/guard.toml"), "one").unwrap_err();
            let path = path.display();
            assert_eq!(
                error.to_string(),
                format!(
                    "its directory is not there, and is not made in {path}: that belongs to uid \
                     65534"
                )
            );
        }
    }
}
