//! What a process is to a device that it has open, or that its driver lists.

use super::names;
use gpukill_proto::holders::{HeldDevice, Holder, ProcessState, Role};
use gpukill_proto::reading::Reading;

/// What this process is to this device.
#[must_use]
pub fn role(holder: &Holder, device: &HeldDevice) -> Role {
    if is_gone(holder) {
        return Role::Gone;
    }
    // What it has open is counted for another one.
    if holder.shares_with.is_some_and(|pid| pid != holder.pid) {
        return Role::Sharer;
    }
    if holder.passed_from.is_some() && !holder.listed {
        return Role::Passed;
    }
    let name = name(holder);
    if names::is_mps(name) {
        return Role::Mps;
    }
    if names::is_monitor(name) && !explains_itself(holder) {
        return Role::Monitor;
    }
    if names::is_display(name) {
        return Role::Display;
    }
    if explains_itself(holder) {
        return user(holder);
    }
    if is_zombie(holder) {
        return Role::Zombie;
    }
    // The descriptors of one that ends are gone before its memory is.
    let may_hold = holder.holds_this_device || holder.listed || holder.holds.is_empty();
    match holder.state.known() {
        Some(ProcessState::Uninterruptible(_)) if may_hold => return Role::Uninterruptible,
        _ if holder.listed => return user(holder),
        _ if !holder.holds_this_device => return Role::Monitor,
        _ => {}
    }
    orphan(holder, device).unwrap_or_else(|| {
        if is_in_a_namespace(holder) {
            Role::OtherNamespace
        } else {
            Role::Unlisted
        }
    })
}

/// What a process of this name is called: the kernel keeps 15 bytes of names, and
/// of the programs that watch devices the rest is known.
#[must_use]
pub fn whole_name(name: &str) -> &str {
    names::whole(name)
}

/// Why nobody ends a process of this name for its memory; `None` where no more
/// than its owner's wish is needed.
#[must_use]
pub fn protection(pid: u32, name: &str) -> Option<&'static str> {
    if pid <= 1 {
        Some("it is process 1, on which all others depend")
    } else if names::is_login(name) {
        Some("people log in through it, or it keeps their sessions")
    } else if names::is_service(name) {
        Some("it watches the devices, and holds no memory")
    } else if names::is_display(name) {
        Some("it is a display server: it ends with its session")
    } else if names::is_mps(name) {
        Some("it is an MPS server: all its clients would end with it")
    } else {
        None
    }
}

fn user(holder: &Holder) -> Role {
    if holder.used_for.mps {
        Role::MpsClient
    } else {
        Role::User
    }
}

/// Whether the driver lists it under a pid that is no process here, or none any more.
pub(super) fn is_gone(holder: &Holder) -> bool {
    let is_over = matches!(holder.start_ticks, Reading::Failed(_) | Reading::Stale(..));
    holder.listed && is_over
}

/// Whether it has ended as a whole. One whose first thread alone has ended is
/// called a zombie by the kernel too: that one still has files open.
pub(super) fn is_zombie(holder: &Holder) -> bool {
    holder.state.known() == Some(&ProcessState::Zombie) && holder.holds.is_empty()
}

/// Whether it is known how much of the used memory is its, and it still uses it.
pub(super) fn explains_itself(holder: &Holder) -> bool {
    lives_and_is_listed(holder) && holder.memory.known().is_some()
}

/// Whether it is listed, and has not ended.
pub(super) fn lives_and_is_listed(holder: &Holder) -> bool {
    holder.listed && !is_gone(holder) && !is_zombie(holder)
}

/// The kernel's name for it; empty where that is not known.
pub(super) fn name(holder: &Holder) -> &str {
    holder.name.last_known().map_or("", String::as_str)
}

fn is_in_a_namespace(holder: &Holder) -> bool {
    let is_some = |pid: &Reading<Option<u32>>| pid.last_known().copied().flatten().is_some();
    let container = holder.container.last_known();
    is_some(&holder.inner_pid) || container.is_some_and(Option::is_some)
}

/// Whether the leader of its process group has ended and left it behind. Who its
/// parent is says nothing: a child whose parent ends gets another one, so that a
/// parent with the pid of one that has ended was given that pid again.
fn orphan(holder: &Holder, device: &HeldDevice) -> Option<Role> {
    // 0 is one that is not of this PID namespace: nothing is known of it.
    let group = holder.group.known().copied().filter(|pid| *pid != 0)?;
    // Whatever leads itself is nobody's worker: services, and the first processes
    // of containers, have such parents from their beginning.
    if group == holder.pid {
        return None;
    }
    let former = device.ended.iter().find(|ended| ended.key.pid == group);
    let left_behind = match holder.group_leader_is_here.known() {
        Some(is_here) => !is_here,
        None => former.is_some(),
    };
    left_behind.then(|| Role::Orphan {
        of: Some(group),
        ended: former.map(|ended| ended.at),
    })
}

/// Whether its parent is one that takes in the children of those that end.
pub(super) fn is_adopted(holder: &Holder) -> bool {
    let parent = holder.parent_name.known();
    holder.parent.known() == Some(&1) || parent.is_some_and(|name| names::is_reaper(name))
}
