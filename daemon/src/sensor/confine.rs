//! Confines the daemon's children: the sensor may read the host and use devices; the evaluator may
//! read files that it already has open. Neither may affect the daemon, although they run as its
//! user.
//!
//! The restrictions on the sensor do not affect a driver library that only reads: each refusal is
//! an error for it (`EPERM`, `EACCES`), not its end. Reading is not restricted.

mod calls;

use calls::RecordLocks;
use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    path_beneath_rules,
};
use seccompiler::apply_filter;
use std::io;

/// Below it, the sensor may write to existing files, as far as their modes and the unit allow it.
/// It cannot create, rename or remove files anywhere: `/dev/shm` belongs to everyone. `/proc` and
/// `/sys` are not included: root can change kernel settings without any capability, and a person
/// can change their own cgroups.
const DEVICE_DIRECTORY: &str = "/dev";

/// The files that the evaluator may open, for reading: it evaluates rules in local time.
const TIME_ZONES: [&str; 3] = ["/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo"];

/// Keeps the calling thread, and all threads that it starts from now on, from writing to anything
/// but devices.
///
/// # Errors
/// When the kernel has no system call filters. A kernel without Landlock (before 5.13, or disabled)
/// is no error: the sensor can then write to files of the daemon's user.
pub(crate) fn confine_to_devices() -> io::Result<()> {
    restrict_writes_to_devices().map_err(io::Error::other)?;
    apply_filters(RecordLocks::Refused)
}

/// Restricts the calling thread, and all threads that it starts from now on, to the files that it
/// has open: it may lock them, as SQLite does to read.
///
/// # Errors
/// As [`confine_to_devices`].
pub(crate) fn confine_to_open_files() -> io::Result<()> {
    restrict_to_open_files().map_err(io::Error::other)?;
    apply_filters(RecordLocks::Allowed)
}

fn apply_filters(locks: RecordLocks) -> io::Result<()> {
    for filter in calls::filters(locks).map_err(io::Error::other)? {
        apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn restrict_to_open_files() -> Result<(), RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V3))?
        .create()?
        .add_rules(path_beneath_rules(
            TIME_ZONES,
            AccessFs::ReadFile | AccessFs::ReadDir,
        ))?
        .restrict_self()?;
    Ok(())
}

fn restrict_writes_to_devices() -> Result<(), RulesetError> {
    // Includes truncation, which Linux 6.2 can refuse; older kernels refuse what they know.
    let writing = AccessFs::from_write(ABI::V3);
    Ruleset::default()
        .handle_access(writing)?
        .create()?
        .add_rules(path_beneath_rules([DEVICE_DIRECTORY], AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, fcntl_lock};
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use rustix::process::{Signal, getpid, kill_process};
    use std::fs::{File, OpenOptions};
    use std::io::Read as _;
    use std::process::Command;

    /// Runs a function on a confined thread and returns its result.
    fn run_confined<T: Send>(then: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                rustix::thread::set_no_new_privs(true).unwrap();
                confine_to_open_files().unwrap();
                then()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn evaluator_uses_only_open_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "open").unwrap();
        let mut open = File::open(file.path()).unwrap();
        let shared = OpenOptions::new().write(true).open(file.path()).unwrap();
        run_confined(|| {
            let mut text = String::new();
            open.read_to_string(&mut text).unwrap();
            assert_eq!(text, "open");
            fcntl_lock(&shared, FlockOperation::NonBlockingLockExclusive).unwrap();
            // The local time zone is allowed.
            let zone = std::path::Path::new("/etc/localtime");
            assert_eq!(File::open(zone).is_ok(), zone.exists());
            let denied = |result: io::Result<()>| {
                let error = result.expect_err("it is let through").raw_os_error();
                let expected = [Errno::ACCESS, Errno::PERM].map(|it| Some(it.raw_os_error()));
                assert!(expected.contains(&error), "{error:?}");
            };
            denied(File::open(file.path()).map(drop));
            denied(File::open("/etc/passwd").map(drop));
            denied(File::open("/proc/self/status").map(drop));
            denied(File::create(file.path().with_extension("new")).map(drop));
            denied(std::fs::remove_file(file.path()));
            denied(std::fs::read_dir("/").map(drop));
            denied(Command::new("/bin/true").spawn().map(drop));
            let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None);
            denied(socket.map(drop).map_err(io::Error::from));
            denied(kill_process(getpid(), Signal::CONT).map_err(io::Error::from));
        });
        // The other threads are not restricted.
        File::open(file.path()).unwrap();
    }
}
