//! Facts about the host for a report: the kernel, the distribution, systemd, and the daemon's
//! socket and unit. Reads only files that everybody may read.

use gpukill_proto::DEFAULT_SOCKET;
use gpukill_proto::json::report::{
    FileMode, HostPart, Printed, SocketPart, UnitPart, Version, distribution,
};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata, read_dir};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// The first existing file counts (os-release(5)).
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Maximum number of bytes to read; the file has some hundred.
const MAX_OS_RELEASE_BYTES: u64 = 64 << 10;

/// Directories of systemd's own libraries, in Fedora and in Debian.
const SYSTEMD_LIBRARY_DIRS: [&str; 5] = [
    "/usr/lib64/systemd",
    "/usr/lib/systemd",
    "/usr/lib/x86_64-linux-gnu/systemd",
    "/usr/lib/aarch64-linux-gnu/systemd",
    "/lib/systemd",
];

/// Directories of units; the first unit of a name counts (systemd.unit(5)).
const UNIT_DIRS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Maximum number of entries of a directory to read.
const MAX_DIR_ENTRIES: usize = 4_096;

/// The operating system of the host.
pub(crate) fn host() -> HostPart {
    let release = OS_RELEASE
        .iter()
        .find_map(|path| read_text(Path::new(path)));
    let release = release.unwrap_or_default();
    HostPart {
        kernel: Version::parse(&rustix::system::uname().release().to_string_lossy()),
        architecture: std::env::consts::ARCH,
        distribution: os_release_value(&release, "ID").map(|id| distribution(&id)),
        distribution_version: os_release_value(&release, "VERSION_ID")
            .map(|it| Version::parse(&it)),
        systemd: SYSTEMD_LIBRARY_DIRS
            .iter()
            .find_map(|path| systemd_version(Path::new(path))),
        // sd_booted(3)
        systemd_runs: Path::new("/run/systemd/system").is_dir(),
    }
}

fn read_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    // Opening a pipe would block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(Metadata::is_file)?;
    file.take(MAX_OS_RELEASE_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// The value of a key in os-release(5), without its quotes.
fn os_release_value(release: &str, key: &str) -> Option<String> {
    let mut values = release.lines().filter_map(|line| line.split_once('='));
    let (_, value) = values.find(|(name, _)| *name == key)?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// The version in `libsystemd-shared-257.4-1.fc42.so`.
fn systemd_version(directory: &Path) -> Option<Version> {
    let entries = read_dir(directory).ok()?.take(MAX_DIR_ENTRIES).flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.find_map(|name| {
        let version = name.strip_prefix("libsystemd-shared-")?;
        Some(Version::parse(version.strip_suffix(".so")?))
    })
}

/// Facts about the socket: `named` by the user, else `chosen`.
pub(crate) fn socket(named: Option<&Path>, chosen: Option<&Path>) -> SocketPart {
    let host_socket = Path::new(DEFAULT_SOCKET);
    let path = chosen.unwrap_or(host_socket);
    let place = match named {
        _ if path == host_socket => "host",
        Some(_) => "named",
        None => "own",
    };
    let metadata = path.metadata();
    let (is, error) = match &metadata {
        Ok(metadata) if metadata.file_type().is_socket() => ("socket", None),
        Ok(_) => ("other", None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => ("missing", None),
        Err(error) => ("unreadable", Some(Printed(error.kind()))),
    };
    let metadata = metadata.ok();
    SocketPart {
        place,
        path: (place == "host").then_some(DEFAULT_SOCKET),
        is,
        error,
        mode: metadata
            .as_ref()
            .map(|metadata| Printed(FileMode(metadata.mode()))),
        owner: metadata.as_ref().map(owner_kind),
    }
}

fn owner_kind(metadata: &Metadata) -> &'static str {
    match metadata.uid() {
        0 => "root",
        uid if uid == rustix::process::getuid().as_raw() => "you",
        _ => "another",
    }
}

/// The units of the daemon and of its helper, as installed.
pub(crate) fn unit() -> UnitPart {
    let directories = UNIT_DIRS.map(Path::new);
    let drop_ins = |directory: &&Path| directory.join("gpukilld.service.d").is_dir();
    UnitPart {
        gpukilld: unit_state(&directories, "gpukilld.service"),
        // Only the first two directories are the admin's; a package's drop-ins do not count.
        drop_ins: directories.iter().take(2).any(drop_ins),
        reset_socket: unit_state(&directories, "gpukill-reset.socket"),
    }
}

/// Whether a unit of this name exists. A masked unit is a link to /dev/null.
fn unit_state(directories: &[&Path], name: &str) -> &'static str {
    let mut paths = directories.iter().map(|directory| directory.join(name));
    match paths.find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => match std::fs::read_link(path) {
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
    fn os_release_values_lose_their_quotes() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\nID_LIKE='x y'\n";
        assert_eq!(os_release_value(release, "ID").as_deref(), Some("debian"));
        assert_eq!(
            os_release_value(release, "VERSION_ID").as_deref(),
            Some("12")
        );
        assert_eq!(os_release_value(release, "BUILD_ID"), None);
    }

    #[test]
    fn pipe_does_not_block() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("os-release");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(read_text(&pipe)));
        let read = receiver.recv_timeout(Duration::from_secs(10));
        assert_eq!(read, Ok(None));
    }

    #[test]
    fn systemd_version_is_in_the_library_name() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(systemd_version(directory.path()), None);
        for name in ["systemd-logind", "libsystemd-shared-257.4-1.fc42.so"] {
            std::fs::write(directory.path().join(name), "").expect("written");
        }
        let expected = Version::parse("257.4-1.fc42");
        assert_eq!(systemd_version(directory.path()), Some(expected));
    }

    #[test]
    fn unit_is_installed_masked_or_missing() {
        let [admin, package] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let directories = [admin.path(), package.path()];
        let name = "gpukilld.service";
        assert_eq!(unit_state(&directories, name), "none");
        std::fs::write(package.path().join(name), "").expect("written");
        assert_eq!(unit_state(&directories, name), "installed");
        symlink("/dev/null", admin.path().join(name)).expect("linked");
        assert_eq!(unit_state(&directories, name), "masked");
    }

    #[test]
    fn named_socket_is_described_without_its_path() {
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
        let host_socket = socket(None, Some(Path::new(DEFAULT_SOCKET)));
        assert_eq!(
            (host_socket.place, host_socket.path),
            ("host", Some(DEFAULT_SOCKET))
        );
    }
}
