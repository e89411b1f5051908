//! Whether a process belongs to an active session at a seat: its cgroup names the session, and
//! logind's file about the session has the rest. These files are in `/run`, which never hangs.

use super::cgroup::CgroupLocation;
use crate::procfs::read_failure;
use gpukill_policy::kill::protection::has_display_server_name;
use gpukill_policy::kill::seat::LogindSession;
use gpukill_proto::reading::Reading;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Logind's directory with a file for each session, below the host's root.
const SESSIONS_DIR: &str = "run/systemd/sessions";

/// Such a file has some thirty short lines.
const FILE_MAX: u64 = 64 << 10;

/// How many session files are read: more than one user has.
const SESSIONS_MAX: usize = 4_096;

/// For a process with this name; unsupported where it is no display server.
pub(super) fn is_display_at_seat(
    name: &str,
    host_root: &Path,
    group: &CgroupLocation,
    uid: Option<u32>,
) -> Reading<bool> {
    match has_display_server_name(name) {
        true => is_at_seat(host_root, group, uid),
        false => Reading::Unsupported,
    }
}

/// For a process of this user in this cgroup. A process started by a user's own systemd belongs to
/// all sessions of that user.
fn is_at_seat(host_root: &Path, group: &CgroupLocation, uid: Option<u32>) -> Reading<bool> {
    let Some(uid) = uid else {
        return Reading::Failed("its user is not known".into());
    };
    let (session, unit) = match (&group.session, &group.unit) {
        (Reading::Value(session), Reading::Value(unit)) => (session, unit),
        (Reading::Value(_), unknown) => return unknown.as_unknown(),
        (unknown, _) => return unknown.as_unknown(),
    };
    let sessions = host_root.join(SESSIONS_DIR);
    if let Some(id) = session {
        return seat_reading(is_session_at_seat(&sessions.join(id), uid));
    }
    let manager = unit.as_ref().and_then(|unit| unit.manager);
    // The unit of a user's own systemd is a system unit.
    let own = unit.as_ref().map(|unit| unit.name.as_str()) == Some(&format!("user@{uid}.service"));
    if manager == Some(uid) || own {
        return seat_reading(has_session_at_seat(&sessions, uid));
    }
    Reading::Value(false)
}

fn seat_reading(is_at_seat: io::Result<bool>) -> Reading<bool> {
    match is_at_seat {
        Ok(is_at_seat) => Reading::Value(is_at_seat),
        // No such session, or no logind.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Value(false),
        Err(error) => read_failure(error),
    }
}

fn has_session_at_seat(sessions: &Path, uid: u32) -> io::Result<bool> {
    for entry in std::fs::read_dir(sessions)?.take(SESSIONS_MAX) {
        let path = entry?.path();
        // Beside a file there may be a pipe, `ID.ref`.
        let is_file = path.extension().is_none();
        if is_file && matches!(is_session_at_seat(&path, uid), Ok(true)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_session_at_seat(file: &Path, uid: u32) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(file, flags, Mode::empty())?);
    let stat = rustix::fs::fstat(&file)?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    if !is_file || stat.st_uid != 0 {
        return Ok(false);
    }
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text)?;
    Ok(LogindSession::parse(&String::from_utf8_lossy(&text)).is_at_seat(uid))
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::CgroupView;
    use super::*;

    const AT_SEAT: &str = "UID=1000\nACTIVE=1\nREMOTE=0\nTYPE=wayland\nCLASS=user\nSEAT=seat0\n";

    #[test]
    fn session_comes_from_cgroup_and_root_files() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root makes files of root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let sessions = root.path().join(SESSIONS_DIR);
        std::fs::create_dir_all(&sessions).unwrap();
        std::fs::write(sessions.join("2"), AT_SEAT).unwrap();
        std::fs::write(sessions.join("3"), AT_SEAT.replace("ACTIVE=1", "ACTIVE=0")).unwrap();
        std::fs::write(sessions.join("4"), AT_SEAT).unwrap();
        std::os::unix::fs::chown(sessions.join("4"), Some(1000), None).unwrap();
        std::os::unix::fs::symlink("2", sessions.join("5")).unwrap();
        let of = |path: &str, uid: u32| {
            let group = CgroupLocation::parse(&format!("0::{path}\n"), CgroupView::Whole, None);
            is_at_seat(root.path(), &group, Some(uid))
        };
        let slice = "/user.slice/user-1000.slice";
        let own = "/user.slice/user-1000.slice/user@1000.service";
        let yes = Reading::Value(true);
        let no = Reading::Value(false);
        assert_eq!(of(&format!("{slice}/session-2.scope"), 1000), yes);
        assert_eq!(of(&format!("{slice}/session-2.scope"), 1001), no);
        for inactive in ["3", "4", "6"] {
            let path = format!("{slice}/session-{inactive}.scope");
            assert_eq!(of(&path, 1000), no, "{inactive}");
        }
        assert!(
            of(&format!("{slice}/session-5.scope"), 1000)
                .failure()
                .is_some()
        );
        assert_eq!(of(&format!("{own}/session.slice/gnome.service"), 1000), yes);
        assert_eq!(of(&format!("{own}/init.scope"), 1000), yes);
        // Names that a user gives to own cgroups.
        let other = "/user.slice/user-1001.slice/user@1001.service";
        assert_eq!(of(&format!("{other}/session-2.scope"), 1001), no);
        assert_eq!(of(&format!("{other}/session-2.scope"), 1000), no);
        assert_eq!(of("/system.slice/x.service/session-2.scope", 1000), no);
        assert_eq!(of("/", 1000), no);
        let text = format!("0::{own}/a.service\n");
        let group = CgroupLocation::parse(&text, CgroupView::Whole, None);
        let without = is_at_seat(Path::new("/nonexistent"), &group, Some(1000));
        assert_eq!(without, no);
    }
}
