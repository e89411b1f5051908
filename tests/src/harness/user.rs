//! Acting as somebody else, on one thread and in what it starts. The kernel
//! keeps users by thread; only libc makes all threads of a process alike.

use super::{built, skip};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::OnceLock;

/// A user without any right, on every Linux.
pub const NOBODY: u32 = 65_534;

/// So many users of its own the suite has.
const USERS: u32 = 500;

/// The uid of one of the suite's own users, below 500. It has no name, so that no text
/// depends on the machine: systemd's "Users, Groups, UIDs and GIDs" gives 60578 to 61183
/// to nobody, and a container with 65536 uids has them too.
#[must_use]
pub const fn user(number: u32) -> u32 {
    assert!(number < USERS, "the suite has no such user");
    60_600 + number
}

/// The number of a group, from the name service.
#[must_use]
pub fn group(name: &str) -> Option<u32> {
    let output = Command::new("getent").args(["group", name]).output();
    let line = String::from_utf8(output.ok()?.stdout).ok()?;
    line.split(':').nth(2)?.parse().ok()
}

/// The first entry that this machine has for one of the suite's own users.
fn named_user() -> Option<&'static String> {
    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    let look = || {
        let users = (0..USERS).map(|number| user(number).to_string());
        let output = Command::new("getent").arg("passwd").args(users).output();
        let entries = String::from_utf8(output.ok()?.stdout).ok()?;
        entries.lines().next().map(str::to_owned)
    };
    NAMED.get_or_init(look).as_ref()
}

/// Does `work` as this user, whose primary group has the same number, with
/// these supplementary groups. Programs that it starts are that user's too.
///
/// # Panics
/// When this process may not do so, and when `work` does.
pub fn acting_as<T: Send>(uid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            change_to(uid, groups).expect("only root may act as others");
            work()
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Makes this thread that user's for good.
fn change_to(uid: u32, groups: &[u32]) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

/// Whether user ids stand for as many people here: the daemon counts all processes in
/// one person's slice for one person, those of [`acting_as`] too. Says why they do not.
#[must_use]
pub fn can_be_several_people() -> bool {
    if !can_act_as_others() {
        return false;
    }
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if cgroup.contains(":/user.slice/") {
        skip("the tests run in a person's login session");
        return false;
    }
    true
}

/// Whether [`acting_as`] works here, for programs too. Says why it does not.
#[must_use]
pub fn can_act_as_others() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("only root can act as another user");
        return false;
    }
    let changed = std::thread::spawn(|| change_to(NOBODY, &[]).is_ok());
    if !changed.join().unwrap_or(false) {
        skip("this root has no other users: it is one of a user namespace");
        return false;
    }
    if let Some(entry) = named_user() {
        skip(&format!(
            "the suite's users have names on this machine: {entry}"
        ));
        return false;
    }
    let program = &built().gpukillctl;
    let runs = acting_as(NOBODY, &[], || {
        Command::new(program).arg("--version").output().is_ok()
    });
    if !runs {
        skip("other users cannot reach the binaries");
    }
    runs
}
