//! Creates the missing directory of the rules file, but only where no other user can tamper with
//! it.

use crate::config::{OTHERS_WRITE, STICKY, parent_directory};
use std::fs::{File, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Users with write permission may let others read.
const MODE: u32 = 0o755;

/// The kernel follows this many links on one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The mode of a missing directory for settings, as the XDG Base Directory Specification has it.
const PRIVATE_MODE: u32 = 0o700;

/// Creates this directory, owned by the current user and read-only for others; and its parent if
/// that is missing too, such as ~/.config of a new user. If more is missing, the path is probably a
/// mistake.
///
/// # Errors
/// If the parent of both does not exist, others could replace the directory, or the disk refuses.
pub(super) fn make(directory: &Path) -> Result<()> {
    let parent = parent_directory(directory);
    if parent.exists() {
        return create_in_parent(directory, parent, MODE);
    }
    let grandparent = parent_directory(parent);
    if !grandparent.exists() {
        let (grandparent, directory) = (grandparent.display(), directory.display());
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no directory {grandparent}: mkdir -p {directory}"),
        ));
    }
    create_in_parent(parent, grandparent, PRIVATE_MODE)?;
    create_in_parent(directory, parent, MODE)
}

/// Creates one directory in `parent`.
fn create_in_parent(directory: &Path, parent: &Path, mode: u32) -> Result<()> {
    let mut links = MAX_LINKS;
    check_ownership(&std::path::absolute(parent)?, &mut links)?;
    std::fs::DirBuilder::new().mode(mode).create(directory)?;
    // Sets the bits that the umask removed, and clears those inherited from the parent.
    std::fs::set_permissions(directory, Permissions::from_mode(mode))?;
    File::open(parent)?.sync_all()
}

/// Checks that only the current user and root may change what this path leads to: each directory
/// and each link on the way belongs to one of the two, and only they may write to it.
///
/// # Errors
/// If that is not the case.
fn check_ownership(path: &Path, links: &mut usize) -> Result<()> {
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
                format!("its directory does not exist, and is not created in {at}: {why}"),
            ))
        };
        let owner = metadata.uid();
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return refused(format!("it belongs to uid {owner}"));
        }
        if metadata.is_symlink() {
            let Some(left) = links.checked_sub(1) else {
                return refused("too many symbolic links".into());
            };
            *links = left;
            let leads_to = parent_directory(&at).join(std::fs::read_link(&at)?);
            check_ownership(&leads_to, links)?;
        } else if metadata.mode() & OTHERS_WRITE != 0 && metadata.mode() & STICKY == 0 {
            return refused("users other than its owner may write there".into());
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
    fn first_edit_creates_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("gpukill");
        // Files in it inherit its group, which the new directory does not pass on.
        mode(parent.path(), 0o2755);
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
    fn parent_is_created_but_no_more() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("a/b/c/guard.toml");
        let at = parent.path().display();
        assert_eq!(
            replace(&file, "one").unwrap_err().to_string(),
            format!("there is no directory {at}/a: mkdir -p {at}/a/b/c")
        );
        assert!(!parent.path().join("a").exists());
        // A user without ~/.config.
        let config = parent.path().join(".config");
        replace(&config.join("gpukill/guard.toml"), "one").unwrap();
        let modes = [config.clone(), config.join("gpukill")];
        let modes = modes.map(|it| it.metadata().unwrap().mode() & 0o7777);
        assert_eq!(modes, [0o700, 0o755]);
    }

    #[test]
    fn refused_where_others_could_replace_it() {
        let parent = tempfile::tempdir().unwrap();
        let open = parent.path().join("open");
        std::fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        let expected = format!(
            "its directory does not exist, and is not created in {}: users other than its owner may \
             write there",
            open.display()
        );
        let refused = |path: &Path| {
            let error = replace(&path.join("gpukill/guard.toml"), "one").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            error.to_string()
        };
        assert_eq!(refused(&open), expected);
        // Nor through links that are there, or that lead there.
        let ours = parent.path().join("ours");
        std::fs::create_dir(&ours).unwrap();
        symlink(&ours, open.join("link")).unwrap();
        assert_eq!(refused(&open.join("link")), expected);
        symlink("open/link", parent.path().join("chain")).unwrap();
        assert_eq!(refused(&parent.path().join("chain")), expected);
        assert_eq!(std::fs::read_dir(&ours).unwrap().count(), 0);
        // In a sticky directory only the owner of an entry can rename it.
        mode(&open, 0o1777);
        replace(&open.join("link/gpukill/guard.toml"), "one").unwrap();
        assert!(ours.join("gpukill/guard.toml").is_file());
    }

    #[test]
    fn refused_below_a_foreign_directory() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a directory to others");
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let (foreign, link) = (parent.path().join("theirs"), parent.path().join("link"));
        std::fs::create_dir(&foreign).unwrap();
        symlink(parent.path(), &link).unwrap();
        for path in [&foreign, &link] {
            std::os::unix::fs::lchown(path, Some(65_534), None).unwrap();
            let error = replace(&path.join("gpukill/guard.toml"), "one").unwrap_err();
            let path = path.display();
            assert_eq!(
                error.to_string(),
                format!(
                    "its directory does not exist, and is not created in {path}: it belongs to uid \
                     65534"
                )
            );
        }
    }
}
