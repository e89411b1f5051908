//! What the daemon's children may do to the box: the sensor reads it and works with
//! devices; the evaluator reads what it had open. Neither does anything to the daemon,
//! whose user they have.
//!
//! What the sensor is kept from, a driver's library has no use for while it reads: each
//! refusal is an error to it (`EPERM`, `EACCES`), and not its end. Not kept from it is
//! reading.

mod calls;

use calls::Locks;
use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    path_beneath_rules,
};
use seccompiler::apply_filter;
use std::io;

/// Below it, the sensor may write to files that are there, as far as their modes and the
/// unit let it. It makes, renames and removes none anywhere: `/dev/shm` is everybody's. Not
/// `/proc` and `/sys`: settings of the kernel's are open to root without any capability, and
/// a person's own cgroups to that person.
const DEVICES: &str = "/dev";

/// What the evaluator may open, for reading: it judges by the time of day here.
const TIME_ZONES: [&str; 3] = ["/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo"];

/// Keeps the calling thread, and every one that it starts from now on, from writing to
/// anything but devices.
///
/// # Errors
/// When the kernel has no filters of system calls. One without Landlock (before 5.13, or
/// switched off) is none: then the sensor could write to what the daemon's user owns.
pub(crate) fn confine_to_devices() -> io::Result<()> {
    keep_to_devices().map_err(io::Error::other)?;
    filter(Locks::Refused)
}

/// Keeps the calling thread, and every one that it starts from now on, to the files that it
/// has open: it may lock them, as SQLite does to read.
///
/// # Errors
/// As [`confine_to_devices`].
pub(crate) fn confine_to_open_files() -> io::Result<()> {
    keep_to_open_files().map_err(io::Error::other)?;
    filter(Locks::OfRecords)
}

fn filter(locks: Locks) -> io::Result<()> {
    for filter in calls::filters(locks).map_err(io::Error::other)? {
        apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn keep_to_open_files() -> Result<(), RulesetError> {
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

fn keep_to_devices() -> Result<(), RulesetError> {
    // With truncating, which Linux 6.2 can refuse; older kernels refuse what they know.
    let writing = AccessFs::from_write(ABI::V3);
    Ruleset::default()
        .handle_access(writing)?
        .create()?
        .add_rules(path_beneath_rules([DEVICES], AccessFs::WriteFile))?
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

    /// What a thread of its own says when it is confined.
    fn confined<T: Send>(then: impl FnOnce() -> T + Send) -> T {
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
    fn an_evaluator_reads_and_locks_what_it_has_open_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "open").unwrap();
        let mut open = File::open(file.path()).unwrap();
        let shared = OpenOptions::new().write(true).open(file.path()).unwrap();
        confined(|| {
            let mut text = String::new();
            open.read_to_string(&mut text).unwrap();
            assert_eq!(text, "open");
            fcntl_lock(&shared, FlockOperation::NonBlockingLockExclusive).unwrap();
            // Which time it is here it may know.
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
        // Nobody else is kept from it.
        File::open(file.path()).unwrap();
    }
}
