//! What the client sees of the box itself, for a report: the kernel, the distribution,
//! systemd, and the daemon's socket and unit. Only files that everybody may read.

use gpukill_proto::DEFAULT_SOCKET;
use gpukill_proto::document::report::{
    FileMode, HostPart, Printed, SocketPart, UnitPart, Version, distribution,
};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata, read_dir};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// The first that is there is the one (os-release(5)).
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// More of it is not read: it has some hundred bytes.
const LONGEST_OS_RELEASE: u64 = 64 << 10;

/// Where systemd's own libraries lie, in Fedora and in Debian.
const LIBRARIES: [&str; 5] = [
    "/usr/lib64/systemd",
    "/usr/lib/systemd",
    "/usr/lib/x86_64-linux-gnu/systemd",
    "/usr/lib/aarch64-linux-gnu/systemd",
    "/lib/systemd",
];

/// Where units lie, the first of a name counting (systemd.unit(5)).
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// More entries of a directory are not looked at.
const MOST_ENTRIES: usize = 4_096;

/// What runs on the box.
pub(crate) fn host() -> HostPart {
    let release = OS_RELEASE.iter().find_map(|path| text(Path::new(path)));
    let release = release.unwrap_or_default();
    HostPart {
        kernel: Version::parse(&rustix::system::uname().release().to_string_lossy()),
        architecture: std::env::consts::ARCH,
        distribution: value(&release, "ID").map(|id| distribution(&id)),
        distribution_version: value(&release, "VERSION_ID").map(|it| Version::parse(&it)),
        systemd: LIBRARIES.iter().find_map(|path| library(Path::new(path))),
        // sd_booted(3)
        systemd_runs: Path::new("/run/systemd/system").is_dir(),
    }
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    // A pipe would never begin.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(Metadata::is_file)?;
    file.take(LONGEST_OS_RELEASE)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// The value of a key in os-release(5), without its quotes.
fn value(release: &str, key: &str) -> Option<String> {
    let mut values = release.lines().filter_map(|line| line.split_once('='));
    let (_, value) = values.find(|(name, _)| *name == key)?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// The version in `libsystemd-shared-257.4-1.fc42.so`.
fn library(directory: &Path) -> Option<Version> {
    let entries = read_dir(directory).ok()?.take(MOST_ENTRIES).flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.find_map(|name| {
        let version = name.strip_prefix("libsystemd-shared-")?;
        Some(Version::parse(version.strip_suffix(".so")?))
    })
}

/// Where the daemon is asked: where somebody `named`, else what was `chosen`.
pub(crate) fn socket(named: Option<&Path>, chosen: Option<&Path>) -> SocketPart {
    let of_the_box = Path::new(DEFAULT_SOCKET);
    let path = chosen.unwrap_or(of_the_box);
    let place = match named {
        _ if path == of_the_box => "box",
        Some(_) => "named",
        None => "own",
    };
    let found = path.metadata();
    let (is, error) = match &found {
        Ok(found) if found.file_type().is_socket() => ("socket", None),
        Ok(_) => ("other", None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => ("missing", None),
        Err(error) => ("unreadable", Some(Printed(error.kind()))),
    };
    let found = found.ok();
    SocketPart {
        place,
        path: (place == "box").then_some(DEFAULT_SOCKET),
        is,
        error,
        mode: found.as_ref().map(|found| Printed(FileMode(found.mode()))),
        owner: found.as_ref().map(owner),
    }
}

fn owner(found: &Metadata) -> &'static str {
    match found.uid() {
        0 => "root",
        uid if uid == rustix::process::getuid().as_raw() => "you",
        _ => "another",
    }
}

/// What systemd has of the daemon and of its helper.
pub(crate) fn unit() -> UnitPart {
    let directories = UNITS.map(Path::new);
    let drop_ins = |directory: &&Path| directory.join("gpukilld.service.d").is_dir();
    UnitPart {
        gpukilld: state(&directories, "gpukilld.service"),
        // What a package brings is no admin's.
        drop_ins: directories.iter().take(2).any(drop_ins),
        reset_socket: state(&directories, "gpukill-reset.socket"),
    }
}

/// Whether there is a unit of this name. One that is masked is a link to nothing.
fn state(directories: &[&Path], name: &str) -> &'static str {
    let mut places = directories.iter().map(|directory| directory.join(name));
    match places.find(|place| place.symlink_metadata().is_ok()) {
        Some(place) => match std::fs::read_link(place) {
            Ok(target) if target == Path::new("/dev/null") => "masked",
            Ok(_) | Err(_) => "installed",
        },
        None => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_value_of_os_release_is_had_without_its_quotes() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\nID_LIKE='x y'\n";
        assert_eq!(value(release, "ID").as_deref(), Some("debian"));
        assert_eq!(value(release, "VERSION_ID").as_deref(), Some("12"));
        assert_eq!(value(release, "BUILD_ID"), None);
    }

    #[test]
    fn a_pipe_in_the_place_of_os_release_holds_nobody_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("os-release");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(text(&pipe)));
        let read = receiver.recv_timeout(Duration::from_secs(10));
        assert_eq!(read, Ok(None));
    }

    #[test]
    fn the_version_of_systemd_is_in_the_name_of_its_library() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(library(directory.path()), None);
        for name in ["systemd-logind", "libsystemd-shared-257.4-1.fc42.so"] {
            std::fs::write(directory.path().join(name), "").expect("written");
        }
        let expected = Version::parse("257.4-1.fc42");
        assert_eq!(library(directory.path()), Some(expected));
    }

    #[test]
    fn a_unit_is_installed_masked_or_not_there() {
        let [admin, package] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let directories = [admin.path(), package.path()];
        let name = "gpukilld.service";
        assert_eq!(state(&directories, name), "none");
        std::fs::write(package.path().join(name), "").expect("written");
        assert_eq!(state(&directories, name), "installed");
        symlink("/dev/null", admin.path().join(name)).expect("linked");
        assert_eq!(state(&directories, name), "masked");
    }

    #[test]
    fn of_a_named_socket_what_it_is_is_told_and_not_where() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("alice.sock");
        let missing = socket(Some(&path), Some(&path));
        let expected = SocketPart {
            place: "named",
            path: None,
            is: "missing",
            error: None,
            mode: None,
            owner: None,
        };
        assert_eq!(missing, expected);
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let mode = std::fs::Permissions::from_mode(0o660);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        let there = socket(Some(&path), Some(&path));
        assert_eq!(
            (
                there.is,
                there.mode.map(|mode| Printed(FileMode(mode.0.0 & 0o7777)))
            ),
            ("socket", Some(Printed(FileMode(0o660))))
        );
        let of_the_box = socket(None, Some(Path::new(DEFAULT_SOCKET)));
        assert_eq!(
            (of_the_box.place, of_the_box.path),
            ("box", Some(DEFAULT_SOCKET))
        );
    }
}
