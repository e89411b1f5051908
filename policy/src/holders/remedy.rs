//! Decides which processes a suggested command may name: only a worker that its own
//! leader left behind. A copied command asks for no confirmation.

use super::DeviceEvidence;
use super::program_names;
use super::role::{is_alive_and_listed, program_protection};
use crate::access::UID_MIN;
use crate::job::is_called_like_a_keeper;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::holders::{Holder, Remedy, Role};
use std::collections::BTreeSet;

/// Returns the command that ends the orphans which a command may name. Returns nothing
/// where other processes may hold the memory, or where a process is a monitor by its
/// name only.
pub(super) fn end_orphans(
    device_evidence: &DeviceEvidence<'_>,
    orphans: &[&Holder],
) -> Option<Remedy> {
    if device_evidence.device.incomplete_reason.is_some()
        || !unverified_monitors(device_evidence).is_empty()
    {
        return None;
    }
    // A listed process that has ended does no work.
    let working = device_evidence.device.holders.iter();
    let working = working.filter(|holder| is_alive_and_listed(holder));
    let listed: BTreeSet<u32> = working.map(|holder| holder.pid).into_set();
    let named = orphans
        .iter()
        .filter(|holder| may_be_ended(holder, &listed));
    let mut pids: Vec<u32> = named.map(|holder| holder.pid).collect();
    pids.sort_indirect();
    pids.dedup();
    pids.truncate(super::MAX_PIDS);
    (!pids.is_empty()).then_some(Remedy::End(pids))
}

/// Whether the process belongs to a person, hosts no work of others and is not part of
/// a listed process. An unknown fact speaks against the command.
fn may_be_ended(holder: &Holder, listed: &BTreeSet<u32>) -> bool {
    let is_of_person = holder.uid.known().is_some_and(|uid| *uid >= UID_MIN);
    let name = holder.name.known().map(String::as_str);
    let is_plain = name.is_some_and(|name| {
        program_protection(holder.pid, name).is_none()
            && !program_names::is_monitor(name)
            && !program_names::is_reaper(name)
            && !program_names::is_runtime(name)
            && !is_called_like_a_keeper(name)
    });
    let of_others = [&holder.parent, &holder.group].into_iter().any(|pid| {
        let pid = pid.known();
        pid.is_none_or(|pid| *pid == holder.pid || listed.contains(pid))
    });
    is_of_person && is_plain && !of_others
}

/// Processes with the name of a monitor that have this device open and are not a system
/// service. A process chooses its own name.
pub(super) fn unverified_monitors<'a>(device_evidence: &DeviceEvidence<'a>) -> Vec<&'a Holder> {
    let mut monitors = device_evidence.holders_with_role(|role| role == Role::Monitor);
    monitors.retain(|holder| {
        let is_a_services = holder.uid.known().is_some_and(|uid| *uid < UID_MIN);
        holder.holds_this_device && !is_a_services
    });
    monitors
}
