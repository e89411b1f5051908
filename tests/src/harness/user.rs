//! Acting as somebody else, on one thread and in what it starts. The kernel
//! keeps users by thread; only libc makes all threads of a process alike.

use super::{built, skip};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::panic::resume_unwind;
use std::process::Command;

/// A user without any right, on every Linux.
pub const NOBODY: u32 = 65_534;

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
    let program = &built().gpukillctl;
    let runs = acting_as(NOBODY, &[], || {
        Command::new(program).arg("--version").output().is_ok()
    });
    if !runs {
        skip("other users cannot reach the binaries");
    }
    runs
}
