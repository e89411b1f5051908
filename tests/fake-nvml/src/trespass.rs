//! Attempts that an overwritten library could make, and that the sensor must refuse.

use std::fs::{File, OpenOptions};
use std::io::{Error, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::thread;

/// Makes all attempts once, and writes to this file, which is opened for reading to make them: the
/// names of those that were allowed, and the pid of a process that is left running. A call that is
/// allowed does nothing, or fails in another way.
pub(crate) fn trespass(file: &Path) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut through = allowed_calls(file);
        through.extend(allowed_file_actions(file));
        through.extend(missing_actions());
        let left = Command::new("sleep").arg("1000").spawn();
        let left = left.map_or(0, |child| child.id());
        append_line(file, &format!("let through: {through:?}, left: {left}"));
        // Last: where systemd refuses these numbers, it kills the caller.
        let refused = is_refused(0x4000_0000 | libc::SYS_getpid, &[0; 4]);
        append_line(file, &format!("x32 refused: {refused}"));
    });
}

fn allowed_calls(file: &Path) -> Vec<&'static str> {
    let Ok(file) = File::open(file) else {
        return vec!["(nothing could be tried)"];
    };
    let daemon = i64::from(parent_id());
    let fd = i64::from(file.as_raw_fd());
    // SAFETY: all zeros is a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(libc::F_RDLCK).unwrap_or_default();
    let lock = &raw const lock as i64;
    let now = [0_i64; 4];
    let now = now.as_ptr() as i64;
    let name = c"user.gpukill".as_ptr() as i64;
    let fork = i64::from(libc::CLONE_SIGHAND);
    let tries: [(&str, libc::c_long, [i64; 4]); 26] = [
        ("signal by F_SETOWN", libc::SYS_fcntl, [fd, 8, daemon, 0]),
        ("any signal by F_SETSIG", libc::SYS_fcntl, [fd, 10, 9, 0]),
        ("F_SETOWN_EX", libc::SYS_fcntl, [fd, 15, 0, 0]),
        ("FIOSETOWN", libc::SYS_ioctl, [fd, 0x8901, 0, 0]),
        ("SIOCSPGRP", libc::SYS_ioctl, [fd, 0x8902, 0, 0]),
        ("TIOCSTI", libc::SYS_ioctl, [fd, 0x5412, 0, 0]),
        ("TIOCLINUX", libc::SYS_ioctl, [fd, 0x541c, 0, 0]),
        ("FS_IOC_SETFLAGS", libc::SYS_ioctl, [fd, 0x4008_6602, 0, 0]),
        (
            "FS_IOC_FSSETXATTR",
            libc::SYS_ioctl,
            [fd, 0x401c_5820, 0, 0],
        ),
        ("lock", libc::SYS_fcntl, [fd, 6, lock, 0]),
        ("lock of a description", libc::SYS_fcntl, [fd, 37, lock, 0]),
        ("lease", libc::SYS_fcntl, [fd, 1024, 0, 0]),
        ("flock", libc::SYS_flock, [fd, 5, 0, 0]),
        ("times", libc::SYS_utimensat, [fd, 0, now, 0]),
        ("no attribute", libc::SYS_fremovexattr, [fd, name, 0, 0]),
        ("setxattrat", 463, [fd, 0, 0, 0]),
        ("removexattrat", 466, [fd, 0, 0, 0]),
        ("file_setattr", 469, [fd, 0, 0, 0]),
        ("socket", libc::SYS_socket, [1, 1, 0, 0]),
        ("ptrace", libc::SYS_ptrace, [2, 0, 0, 0]),
        ("another group", libc::SYS_setpgid, [0, 0, 0, 0]),
        ("namespace", libc::SYS_unshare, [0, 0, 0, 0]),
        ("keys", libc::SYS_keyctl, [0, -2, 0, 0]),
        ("io_uring", libc::SYS_io_uring_setup, [0, 0, 0, 0]),
        // Without CLONE_VM these fail.
        (
            "daemon's child",
            libc::SYS_clone,
            [i64::from(libc::CLONE_PARENT) | fork, 0, 0, 0],
        ),
        (
            "root of its own",
            libc::SYS_clone,
            [0x1000_0000 | fork, 0, 0, 0],
        ),
    ];
    let through = tries
        .iter()
        .filter(|(_, call, with)| !is_refused(*call, with));
    let through = through.map(|it| it.0);
    let mut through: Vec<_> = through.collect();
    // SAFETY: they are numbers.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, 0, 0) };
    if answer != -1 || Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
        through.push("clone3");
    }
    through
}

fn is_refused(call: libc::c_long, [a, b, c, d]: &[i64; 4]) -> bool {
    // SAFETY: the caller owns the data behind the pointers; the other arguments are numbers.
    let answer = unsafe { libc::syscall(call, *a, *b, *c, *d) };
    answer == -1 && Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

fn append_line(file: &Path, what: &str) {
    let report = OpenOptions::new().append(true).open(file);
    let _ = report.and_then(|mut report| writeln!(report, "{what}"));
}

fn allowed_file_actions(beside: &Path) -> Vec<&'static str> {
    let new = beside.with_extension("new");
    let setting = OpenOptions::new().write(true).open("/proc/self/comm");
    let done = [
        ("a file was made", File::create_new(&new).is_ok()),
        ("a file was renamed", std::fs::rename(beside, &new).is_ok()),
        ("a setting was opened", setting.is_ok()),
    ];
    done.into_iter().filter(|it| it.1).map(|it| it.0).collect()
}

/// Actions that a driver's library needs.
fn missing_actions() -> Vec<&'static str> {
    let thread = thread::Builder::new().spawn(|| ());
    let done = [
        ("but no thread", thread.is_ok_and(|it| it.join().is_ok())),
        ("but no process", Command::new("true").status().is_ok()),
        (
            "but no device",
            OpenOptions::new().write(true).open("/dev/null").is_ok(),
        ),
    ];
    done.into_iter().filter(|it| !it.1).map(|it| it.0).collect()
}
