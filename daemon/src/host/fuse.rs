//! The FUSE filesystem that a process waits for, and its server. Only files and links of `/proc`
//! are read: any access below the mount itself would block, too.

use crate::procfs::read_at_most;
use gpukill_proto::text::sanitize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

/// How much of a path is reported.
const PATH_MAX: usize = 256;

/// How much of a list of mounts is read.
const MOUNTS_MAX: u64 = 1 << 20;

/// How much of a descriptor's information is read.
const FDINFO_MAX: u64 = 4 << 10;

/// How many descriptors of one process are read.
const DESCRIPTORS_MAX: usize = 4_096;

/// How many processes are searched for the server, and how many servers are reported: a filesystem
/// has one, but its children may have inherited the connection.
const PROCESSES_MAX: usize = 100_000;
const SERVERS_MAX: usize = 4;

/// The filesystem that a process waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FuseMount {
    /// Its mount point as the process sees it, with control characters made visible.
    pub(crate) path: String,
    /// The processes at the other end of its connection; empty where the kernel does not report
    /// them.
    pub(crate) servers: Vec<u32>,
}

/// A FUSE mount in a `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MountEntry {
    id: u64,
    /// The number of its connection: the minor number of its device.
    connection: u64,
    path: String,
}

/// Whether a process in this kernel function waits for a FUSE server.
fn waits_for_server(function: &str) -> bool {
    function == "request_wait_answer" || function.starts_with("fuse_")
}

/// The FUSE filesystem that this process waits for in this kernel function, where it can be
/// determined: the mount of its open file, or the only mount it sees.
pub(crate) fn awaited_mount(procfs: &Path, pid: u32, function: &str) -> Option<FuseMount> {
    if !waits_for_server(function) {
        return None;
    }
    let directory = procfs.join(pid.to_string());
    let text = read_at_most(&directory.join("mountinfo"), MOUNTS_MAX).ok()?;
    let mounts = fuse_mounts(&String::from_utf8_lossy(&text));
    let open = open_mounts(&directory, &mounts);
    let mount = match (&open[..], &mounts[..]) {
        ([mount], _) => *mount,
        ([], [mount]) => mount,
        _ => return None,
    };
    Some(FuseMount {
        path: sanitize(&unescape(&mount.path).into_vec(), PATH_MAX),
        servers: find_servers(procfs, mount.connection),
    })
}

/// The FUSE mounts of a `mountinfo`.
fn fuse_mounts(text: &str) -> Vec<MountEntry> {
    text.lines().filter_map(fuse_mount).collect()
}

/// `36 35 0:51 / /mnt/x rw,nosuid shared:1 - fuse.sshfs host: rw`
fn fuse_mount(line: &str) -> Option<MountEntry> {
    let (before, after) = line.split_once(" - ")?;
    let kind = after.split(' ').next()?;
    // A `fuseblk` mount has the number of a block device, not of its connection.
    (kind == "fuse" || kind.starts_with("fuse.")).then_some(())?;
    let mut fields = before.split(' ');
    let id = fields.next()?.parse().ok()?;
    let device = fields.nth(1)?.strip_prefix("0:")?;
    Some(MountEntry {
        id,
        connection: device.parse().ok()?,
        path: fields.nth(1)?.to_owned(),
    })
}

/// Decodes the kernel's escape of blanks and the like: `\\040`.
fn unescape(path: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut left = path.as_bytes();
    while let Some((byte, rest)) = left.split_first() {
        let octal = rest.get(..3).filter(|_| *byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                left = rest.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                left = rest;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The mounts of these that this process has a file open on, each once.
fn open_mounts<'a>(directory: &Path, mounts: &'a [MountEntry]) -> Vec<&'a MountEntry> {
    let mut open: Vec<&MountEntry> = Vec::new();
    for name in descriptors(directory) {
        // Reading about a driver's own file may hang, too: such files are left out.
        let link = std::fs::read_link(directory.join("fd").join(&name));
        let is_below = |mount: &MountEntry| {
            let path = unescape(&mount.path);
            link.as_ref().is_ok_and(|link| link.starts_with(&path))
        };
        if !mounts.iter().any(is_below) {
            continue;
        }
        let id = read_number(&directory.join("fdinfo").join(&name), "mnt_id:");
        let mount = mounts.iter().find(|mount| Some(mount.id) == id);
        open.extend(mount.filter(|mount| !open.contains(mount)));
    }
    open
}

/// The processes with `/dev/fuse` open for this connection. Kernels before 6.18 do not report the
/// connection: then there is none.
fn find_servers(procfs: &Path, connection: u64) -> Vec<u32> {
    let Ok((pids, _)) = super::process_table::list_pids(procfs, PROCESSES_MAX) else {
        return Vec::new();
    };
    let serves = |pid: &u32| {
        let directory = procfs.join(pid.to_string());
        descriptors(&directory).any(|name| {
            let link = std::fs::read_link(directory.join("fd").join(&name));
            let file = directory.join("fdinfo").join(&name);
            // A container may have it in another directory.
            link.is_ok_and(|link| link.ends_with("fuse"))
                && read_number(&file, "fuse_connection:") == Some(connection)
        })
    };
    pids.into_iter().filter(serves).take(SERVERS_MAX).collect()
}

fn descriptors(directory: &Path) -> impl Iterator<Item = OsString> {
    let entries = std::fs::read_dir(directory.join("fd"))
        .into_iter()
        .flatten();
    let names = entries.take(DESCRIPTORS_MAX).flatten();
    names.map(|entry| entry.file_name())
}

/// A number from a descriptor's information.
fn read_number(file: &Path, label: &str) -> Option<u64> {
    let text = read_at_most(file, FDINFO_MAX).ok()?;
    let text = String::from_utf8(text).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(label))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw - proc proc rw
36 22 0:51 / /mnt/a\\040b rw,nosuid - fuse.sshfs bob@box: rw,user_id=1000
37 22 0:52 / /mnt/c rw shared:7 - fuse none rw
38 22 8:1 / /mnt/ntfs rw - fuseblk /dev/sda1 rw
39 22 0:53 / /mnt/d rw - fusectl none rw
x 22 0:54 / /mnt/e rw - fuse none rw
40 22 0:-1 / /mnt/f rw - fuse none rw
41 22 0:55 /
";

    fn mount(id: u64, connection: u64, path: &str) -> MountEntry {
        MountEntry {
            id,
            connection,
            path: path.into(),
        }
    }

    #[test]
    fn lists_only_fuse_mounts() {
        let expected = [mount(36, 51, "/mnt/a\\040b"), mount(37, 52, "/mnt/c")];
        assert_eq!(fuse_mounts(MOUNTS), expected);
    }

    /// Descriptors of a fake process: number, target, and their information.
    fn process(root: &Path, pid: u32, mounts: &str, descriptors: &[(u32, &str, &str)]) {
        let directory = root.join(pid.to_string());
        for name in ["fd", "fdinfo"] {
            std::fs::create_dir_all(directory.join(name)).unwrap();
        }
        std::fs::write(directory.join("mountinfo"), mounts).unwrap();
        for (number, target, info) in descriptors {
            let number = number.to_string();
            symlink(target, directory.join("fd").join(&number)).unwrap();
            std::fs::write(directory.join("fdinfo").join(number), info).unwrap();
        }
    }

    const WAITS: &str = "request_wait_answer";

    #[test]
    fn finds_the_server_by_its_connection() {
        let root = tempfile::tempdir().unwrap();
        let info = "pos:\t0\nmnt_id:\t37\n";
        process(root.path(), 7, MOUNTS, &[(3, "/mnt/c/file", info)]);
        let serves = |number| format!("pos:\t0\nmnt_id:\t24\nfuse_connection:\t{number}\n");
        process(root.path(), 8, "", &[(5, "/dev/fuse", &serves(51))]);
        process(root.path(), 9, "", &[(5, "/dev/fuse", &serves(52))]);
        process(root.path(), 10, "", &[(5, "/tmp/forged", &serves(52))]);
        let found = awaited_mount(root.path(), 7, WAITS);
        let expected = FuseMount {
            path: "/mnt/c".into(),
            servers: vec![9],
        };
        assert_eq!(found, Some(expected));
        assert_eq!(awaited_mount(root.path(), 7, "nvidia_close"), None);
    }

    #[test]
    fn old_kernel_reports_no_server() {
        let root = tempfile::tempdir().unwrap();
        process(
            root.path(),
            7,
            MOUNTS,
            &[(3, "/mnt/c/file", "mnt_id:\t37\n")],
        );
        process(root.path(), 8, "", &[(5, "/dev/fuse", "mnt_id:\t24\n")]);
        let servers = awaited_mount(root.path(), 7, WAITS).map(|mount| mount.servers);
        assert_eq!(servers, Some(Vec::new()));
    }

    #[test]
    fn several_mounts_are_ambiguous() {
        let root = tempfile::tempdir().unwrap();
        let both = [
            (3, "/mnt/c/x", "mnt_id:\t37\n"),
            (4, "/mnt/a b/x", "mnt_id:\t36\n"),
        ];
        process(root.path(), 7, MOUNTS, &both);
        process(root.path(), 8, MOUNTS, &[(3, "/mnt/c/x", "mnt_id:\tx\n")]);
        let only = MOUNTS.lines().nth(2).unwrap();
        process(root.path(), 9, only, &[]);
        for (pid, expected) in [(7, None), (8, None), (9, Some("/mnt/c"))] {
            let path = awaited_mount(root.path(), pid, WAITS).map(|mount| mount.path);
            assert_eq!(path.as_deref(), expected, "{pid}");
        }
    }
}
