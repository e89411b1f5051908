//! The role of a process for a device that it has open or that the driver lists for it.

use super::program_names;
use gpukill_proto::holders::{DeviceHolders, Holder, ProcessState, Role};
use gpukill_proto::reading::Reading;

/// Returns the role of this process for this device.
#[must_use]
pub fn role(holder: &Holder, device: &DeviceHolders) -> Role {
    if is_gone(holder) {
        return Role::Gone;
    }
    // Its memory is counted for another process.
    if holder.shares_with.is_some_and(|pid| pid != holder.pid) {
        return Role::SharedClient;
    }
    if holder.passed_from.is_some() && !holder.listed {
        return Role::Passed;
    }
    let name = kernel_name(holder);
    if program_names::is_mps(name) {
        return Role::Mps;
    }
    if program_names::is_monitor(name) && !has_known_memory(holder) {
        return Role::Monitor;
    }
    if program_names::is_display(name) {
        return Role::Display;
    }
    if has_known_memory(holder) {
        return user_role(holder);
    }
    if is_zombie(holder) {
        return Role::Zombie;
    }
    // The descriptors of an ending process are gone before its memory is.
    let may_hold = holder.holds_this_device || holder.listed || holder.holds.is_empty();
    match holder.state.known() {
        Some(ProcessState::Uninterruptible(_)) if may_hold => return Role::Uninterruptible,
        _ if holder.listed => return user_role(holder),
        _ if !holder.holds_this_device => return Role::Monitor,
        _ => {}
    }
    orphan_role(holder, device).unwrap_or_else(|| {
        if is_in_pid_namespace(holder) {
            Role::OtherNamespace
        } else {
            Role::Unlisted
        }
    })
}

/// Returns the full name of a program. The kernel keeps 15 bytes of a name; for
/// monitoring programs the rest is known.
#[must_use]
pub fn full_program_name(name: &str) -> &str {
    program_names::full_name(name)
}

/// Returns why a process of this name is not ended for its memory; `None` where its
/// owner's consent is enough.
#[must_use]
pub fn program_protection(pid: u32, name: &str) -> Option<&'static str> {
    if pid <= 1 {
        Some("it is process 1, and all other processes depend on it")
    } else if program_names::is_login(name) {
        Some("it is a login service or keeps login sessions")
    } else if program_names::is_service(name) {
        Some("it monitors the devices and holds no memory")
    } else if program_names::is_display(name) {
        Some("it is a display server and ends with its session")
    } else if program_names::is_mps(name) {
        Some("it is an MPS server, and all its clients would end with it")
    } else {
        None
    }
}

fn user_role(holder: &Holder) -> Role {
    if holder.used_for.mps {
        Role::MpsClient
    } else {
        Role::User
    }
}

/// Whether the driver lists a pid that does not exist here or no longer exists.
pub(super) fn is_gone(holder: &Holder) -> bool {
    let is_over = matches!(holder.start_ticks, Reading::Failed(_) | Reading::Stale(..));
    holder.listed && is_over
}

/// Whether the whole process has ended. The kernel also reports a zombie where only the
/// first thread has ended; such a process still has files open.
pub(super) fn is_zombie(holder: &Holder) -> bool {
    holder.state.known() == Some(&ProcessState::Zombie) && holder.holds.is_empty()
}

/// Whether the process lives and the share of the used memory that it holds is known.
pub(super) fn has_known_memory(holder: &Holder) -> bool {
    is_alive_and_listed(holder) && holder.memory.known().is_some()
}

/// Whether the process is listed and has not ended.
pub(super) fn is_alive_and_listed(holder: &Holder) -> bool {
    holder.listed && !is_gone(holder) && !is_zombie(holder)
}

/// The kernel's name of the process; empty where it is unknown.
pub(super) fn kernel_name(holder: &Holder) -> &str {
    holder.name.last_known().map_or("", String::as_str)
}

fn is_in_pid_namespace(holder: &Holder) -> bool {
    let is_some = |pid: &Reading<Option<u32>>| pid.last_known().copied().flatten().is_some();
    let container = holder.container.last_known();
    is_some(&holder.inner_pid) || container.is_some_and(Option::is_some)
}

/// Whether the leader of the process group has ended and left the process behind. The
/// parent is no evidence: a child gets another parent when its parent ends, so a parent
/// with the pid of an ended process is a new process with a reused pid.
fn orphan_role(holder: &Holder, device: &DeviceHolders) -> Option<Role> {
    // Group 0 belongs to another PID namespace: nothing is known of it.
    let group = holder.group.known().copied().filter(|pid| *pid != 0)?;
    // A group leader is not a worker: services and the first processes of containers
    // have such parents from the start.
    if group == holder.pid {
        return None;
    }
    let former = device.ended.iter().find(|ended| ended.key.pid == group);
    let left_behind = match holder.group_leader_is_here.known() {
        Some(is_here) => !is_here,
        None => former.is_some(),
    };
    left_behind.then(|| Role::Orphan {
        parent: Some(group),
        ended: former.map(|ended| ended.at),
    })
}

/// Whether the parent is a process that adopts orphaned processes.
pub(super) fn is_adopted(holder: &Holder) -> bool {
    let parent = holder.parent_name.known();
    holder.parent.known() == Some(&1) || parent.is_some_and(|name| program_names::is_reaper(name))
}
