//! Whom a command may name: a worker that its own leader left behind, and nobody
//! else. Whoever copies the command is not asked again.

use super::Seen;
use super::names;
use super::role::{lives_and_is_listed, protection};
use crate::access::UID_MIN;
use crate::job::is_called_like_a_keeper;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{Holder, Remedy, Role};
use std::collections::BTreeSet;

/// Ends these orphans, as far as a command may name them. Nothing where others
/// may hold the memory, or one that only says that it is a monitor.
pub(super) fn end(seen: &Seen<'_>, orphans: &[&Holder]) -> Option<Remedy> {
    if seen.device.unseen.is_some() || !so_called_monitors(seen).is_empty() {
        return None;
    }
    // What is listed and has ended is at no work.
    let working = seen.device.holders.iter();
    let working = working.filter(|holder| lives_and_is_listed(holder));
    let listed: BTreeSet<u32> = working.map(|holder| holder.pid).into_set();
    let named = orphans
        .iter()
        .filter(|holder| may_be_named(holder, &listed));
    let mut pids: Vec<u32> = named.map(|holder| holder.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.truncate(super::MOST);
    (!pids.is_empty()).then_some(Remedy::End(pids))
}

/// Whether it is a person's, keeps no work of others, and is no part of what is
/// listed. What is not known of it speaks against the command.
fn may_be_named(holder: &Holder, listed: &BTreeSet<u32>) -> bool {
    let is_a_persons = holder.uid.known().is_some_and(|uid| *uid >= UID_MIN);
    let name = holder.name.known().map(String::as_str);
    let is_plain = name.is_some_and(|name| {
        protection(holder.pid, name).is_none()
            && !names::is_monitor(name)
            && !names::is_reaper(name)
            && !names::is_runtime(name)
            && !is_called_like_a_keeper(name)
    });
    let of_others = [&holder.parent, &holder.group].into_iter().any(|pid| {
        let pid = pid.known();
        pid.is_none_or(|pid| *pid == holder.pid || listed.contains(pid))
    });
    is_a_persons && is_plain && !of_others
}

/// Those with the name of a monitor that have this very device open, and are no
/// system's service: a name is what a process calls itself.
pub(super) fn so_called_monitors<'a>(seen: &Seen<'a>) -> Vec<&'a Holder> {
    let mut monitors = seen.having(|role| role == Role::Monitor);
    monitors.retain(|holder| {
        let is_a_services = holder.uid.known().is_some_and(|uid| *uid < UID_MIN);
        holder.holds_this_device && !is_a_services
    });
    monitors
}
