//! What a process is to a device that it has open, or that its driver lists.

use super::names;
use gpukill_proto::holders::{EndedHolder, HeldDevice, Holder, ProcessState, Role};
use gpukill_proto::reading::Reading;

/// What this process is to this device.
#[must_use]
pub fn role(holder: &Holder, device: &HeldDevice) -> Role {
    if is_gone(holder) {
        return Role::Gone;
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
    match holder.state.last_known() {
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
    } else if names::is_monitor(name) {
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

/// Whether the driver lists it under a pid that is no process here.
pub(super) fn is_gone(holder: &Holder) -> bool {
    holder.listed && holder.start_ticks.failure().is_some()
}

/// Whether it has ended as a whole. One whose first thread alone has ended is
/// called a zombie by the kernel too: that one still has files open.
pub(super) fn is_zombie(holder: &Holder) -> bool {
    holder.state.last_known() == Some(&ProcessState::Zombie) && holder.holds.is_empty()
}

/// Whether it is known how much of the used memory is its, and it still uses it.
pub(super) fn explains_itself(holder: &Holder) -> bool {
    let is_here = !is_gone(holder) && !is_zombie(holder);
    holder.listed && is_here && holder.memory.last_known().is_some()
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

/// Whether it is what one that has ended left behind, by what is still seen of
/// that one.
fn orphan(holder: &Holder, device: &HeldDevice) -> Option<Role> {
    // 0 is one that is not of this PID namespace: nothing is known of it.
    let seen_here = |pid: &Reading<u32>| pid.last_known().copied().filter(|pid| *pid != 0);
    let (group, parent) = (seen_here(&holder.group), seen_here(&holder.parent));
    let former = |ended: &&EndedHolder| [group, parent].contains(&Some(ended.key.pid));
    // A pid may have been given to another meanwhile, to the process itself too.
    let ended = device
        .ended
        .iter()
        .filter(|ended| ended.key.pid != holder.pid);
    if let Some(ended) = ended.clone().find(former) {
        return Some(Role::Orphan {
            of: Some(ended.key.pid),
            ended: Some(ended.at),
        });
    }
    let leads_itself = group == Some(holder.pid);
    let leader_is_gone =
        group.is_some() && holder.group_leader_is_here.last_known() == Some(&false);
    // Services and the first processes of containers have such parents from
    // their beginning, and each begins a group of its own.
    if !leads_itself && (leader_is_gone || is_adopted(holder)) {
        return Some(Role::Orphan {
            of: group.filter(|_| leader_is_gone),
            ended: None,
        });
    }
    None
}

/// Whether its parent is one that takes in the children of those that end.
pub(super) fn is_adopted(holder: &Holder) -> bool {
    let parent = holder.parent_name.last_known();
    holder.parent.last_known() == Some(&1) || parent.is_some_and(|name| names::is_reaper(name))
}
