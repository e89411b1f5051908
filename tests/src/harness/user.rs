//! Runs code as another user, on one thread and in the programs that the thread starts. The
//! kernel keeps user ids per thread; only libc changes all threads of a process together.

use super::{binaries, skip};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The user without privileges on every Linux.
pub const NOBODY_UID: u32 = 65_534;

/// How many users the suite has.
const TEST_USER_COUNT: u32 = 500;

/// The uid of a user of the suite; `number` is below 500. The user has no name, so that no text
/// depends on the machine: systemd's "Users, Groups, UIDs and GIDs" leaves 60578 to 61183
/// unused, and a container with 65536 uids has them too.
#[must_use]
pub const fn test_uid(number: u32) -> u32 {
    assert!(number < TEST_USER_COUNT, "the suite has no such user");
    60_600 + number
}

/// The user of the gateway in tests that root runs: the gateway of a host refuses to run as root.
#[must_use]
pub fn gateway_uid() -> Option<u32> {
    let is_root = rustix::process::geteuid().is_root();
    is_root.then(|| test_uid(TEST_USER_COUNT - 1))
}

/// Makes the user of the gateway the owner of a file or a directory.
///
/// # Panics
/// When it cannot be given away.
pub fn give_to_gateway(path: impl AsRef<Path>) {
    let owner = gateway_uid();
    if owner.is_some() {
        std::os::unix::fs::chown(path, owner, owner).expect("root may give it away");
    }
}

/// The number of a group, from the name service.
#[must_use]
pub fn group_id(name: &str) -> Option<u32> {
    let output = Command::new("getent").args(["group", name]).output();
    let line = String::from_utf8(output.ok()?.stdout).ok()?;
    line.split(':').nth(2)?.parse().ok()
}

/// The first entry of this machine's user database for a user of the suite.
fn find_named_test_user() -> Option<&'static String> {
    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let users = (0..TEST_USER_COUNT).map(|number| test_uid(number).to_string());
        let output = Command::new("getent").arg("passwd").args(users).output();
        let entries = String::from_utf8(output.ok()?.stdout).ok()?;
        entries.lines().next().map(str::to_owned)
    };
    NAMED.get_or_init(find).as_ref()
}

/// Runs `work` as this user with a primary group of the same number and these supplementary
/// groups. Programs that `work` starts run as that user too.
///
/// # Panics
/// When this process may not change its user, and when `work` panics.
pub fn run_as_user<T: Send>(uid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            change_thread_user(uid, groups).expect("only root may act as others");
            work()
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Changes the user of this thread for its lifetime.
fn change_thread_user(uid: u32, groups: &[u32]) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

/// Whether processes of different user ids belong to different persons here. In a login session
/// they do not: the daemon attributes all processes in a person's slice to that person, those
/// of [`run_as_user`] too. Reports the skip if they do not.
#[must_use]
pub fn can_use_several_persons() -> bool {
    if !can_run_as_other_users() {
        return false;
    }
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if cgroup.contains(":/user.slice/") {
        skip("the tests run in a person's login session");
        return false;
    }
    true
}

/// Whether [`run_as_user`] works here, for programs too. Reports the skip if it does not.
#[must_use]
pub fn can_run_as_other_users() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("only root can act as another user");
        return false;
    }
    let changed = std::thread::spawn(|| change_thread_user(NOBODY_UID, &[]).is_ok());
    if !changed.join().unwrap_or(false) {
        skip("this root has no other users: it is one of a user namespace");
        return false;
    }
    if let Some(entry) = find_named_test_user() {
        skip(&format!(
            "the suite's users have names on this machine: {entry}"
        ));
        return false;
    }
    let program = &binaries().gpukillctl;
    let runs = run_as_user(NOBODY_UID, &[], || {
        Command::new(program).arg("--version").output().is_ok()
    });
    if !runs {
        skip("other users cannot reach the binaries");
    }
    runs
}
