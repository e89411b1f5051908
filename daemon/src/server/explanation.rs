//! Collects all that is known of one process, as far as this caller may see it.

mod guard_part;

pub(super) use guard_part::GuardContext;

use super::holder_pages;
use super::snapshot_pages;
use crate::host::process_state::ProcessStateInfo;
use crate::poll::process_inspector::InspectedProcess;
use crate::state::PublishedPoll;
use gpukill_policy::access::{
    Caller, Operation, Principal, Roles, Ruling, Uids, check, principals_allowed_to_end,
};
use gpukill_policy::holders::{find_causes, role};
use gpukill_policy::memory::{Sharing, sum_of_known};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{
    DeviceHolders, DeviceLabel, EndPermission, Explanation, Holder, HolderFinding, ProcessState,
    Role,
};
use gpukill_proto::model::{BackendState, GpuProcess, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::text::LISTED_BEFORE_START;
use gpukill_proto::units::{Bytes, Timestamp};
use guard_part::guard_part;
use std::collections::BTreeSet;
use std::path::Path;

/// One process is reported on at most this many devices or instances: more than a host has.
const MAX_ENTRIES: usize = 256;

/// The caller, and what bears on the answer.
pub(super) struct ExplanationContext<'a> {
    pub(super) caller: &'a Caller,
    pub(super) roles: &'a Roles,
    /// Why this daemon may end no process; `None` if it may.
    pub(super) disabled_reason: Option<&'a str>,
    /// Why this process is never ended; `None` if it may be.
    pub(super) protected: Option<&'a str>,
    /// The facts that the guard knows.
    pub(super) guard: GuardContext<'a>,
}

/// Explains a process; `None` if it neither uses a device nor has one open. `principal_name` returns the
/// name of a person.
pub(super) fn explain(
    published: &PublishedPoll,
    inspected: &InspectedProcess,
    pid: u32,
    now: Timestamp,
    context: &ExplanationContext<'_>,
    principal_name: impl Fn(Principal) -> String,
) -> Option<Explanation> {
    let snapshot = &published.snapshot;
    let uses: Vec<(DeviceLabel, GpuProcess)> = snapshot
        .processes
        .iter()
        .filter(|process| inspected.identity.includes(process))
        .map(|process| {
            let shown = snapshot_pages::redact(context.caller, context.roles, process);
            (device_label(snapshot, process), shown)
        })
        .take(MAX_ENTRIES)
        .collect();
    let holds: Vec<(DeviceLabel, Holder, Role)> = inspected
        .devices
        .iter()
        .flat_map(|device| holders_with_pid(device, pid))
        .map(|(device, holder)| {
            let shown = holder_pages::redact(context.caller, context.roles, holder);
            (device.label(), shown, role(holder, device))
        })
        .take(MAX_ENTRIES)
        .collect();
    if uses.is_empty() && holds.is_empty() {
        return None;
    }
    let shared = |label: &DeviceLabel| inspected.sharing.iter().any(|(id, _)| *id == label.id);
    let own = uses.iter().filter(|(label, _)| !shared(label));
    let sharing = inspected.sharing.iter().flat_map(|(_, pids)| pids);
    let sharing: BTreeSet<u32> = sharing.copied().into_set();
    Some(Explanation {
        at: now,
        pid,
        frees: sum_of_known(own.map(|(_, process)| exclusive_memory(published, process))),
        shared_with: sharing.into_iter().take(MAX_ENTRIES).collect(),
        files_read_at: inspected.files_read_at.clone(),
        may_end: may_end(&uses, &holds, context, principal_name),
        findings: findings_about(pid, &inspected.devices, now),
        guard: guard_part(snapshot, pid, context),
        rogue: Reading::Unsupported,
        uses,
        holds,
    })
}

/// Why nothing is known of a process: it does not exist, it has ended, it uses no device, its files
/// cannot be read now, or no driver reports any.
pub(super) fn explain_absence(
    published: &PublishedPoll,
    inspected: &InspectedProcess,
    procfs: &Path,
    pid: u32,
) -> Refusal {
    let unread = inspected.files_read_at.failure();
    let condition = ProcessStateInfo::read_pid(procfs, pid);
    Refusal::NoMatch(match condition {
        // If the system hides processes, the process may be here.
        None if unread.is_none() => format!("there is no process {pid}"),
        Some(condition) if condition.state.known() == Some(&ProcessState::Zombie) => {
            let parent = condition.parent.known();
            let parent = parent.map_or_else(String::new, |parent| format!(" {parent}"));
            let name = condition.parent_name.known();
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            format!(
                "process {pid} has ended, and its parent{parent}{name} has not collected its exit \
                 status"
            )
        }
        Some(_) | None => {
            if let Some(failed) = backend_failure(&published.snapshot) {
                return Refusal::Unavailable(failed);
            }
            match unread {
                None => format!("no process {pid} uses a GPU or has one open"),
                Some(why) => format!(
                    "no driver lists process {pid}, and its open files are not known: {why}"
                ),
            }
        }
    })
}

/// Why no device is known, if a driver that may have some has failed.
fn backend_failure(snapshot: &Snapshot) -> Option<String> {
    let mut backends = snapshot.backends.iter();
    let failed = backends.find_map(|backend| match &backend.state {
        BackendState::Failed(_, why) => Some(format!("{} failed: {why}", backend.name)),
        BackendState::Starting => Some(format!("{} has not answered yet", backend.name)),
        BackendState::Ready | BackendState::Absent(_) | BackendState::Quiesced(_) => None,
    });
    failed.filter(|_| snapshot.devices.is_empty())
}

/// The memory of a device that only this process holds.
fn exclusive_memory(published: &PublishedPoll, process: &GpuProcess) -> Reading<Bytes> {
    let sharing = process.key().and_then(|key| {
        let on = (process.device.clone(), key);
        published.sharing.get(&on).copied()
    });
    sharing
        .unwrap_or(Sharing::NONE)
        .exclusive_memory(&process.memory)
}

fn holders_with_pid(
    device: &DeviceHolders,
    pid: u32,
) -> impl Iterator<Item = (&DeviceHolders, &Holder)> {
    let holders = device.holders.iter();
    holders
        .filter(move |holder| holder.pid == pid)
        .map(move |holder| (device, holder))
}

fn device_label(snapshot: &Snapshot, process: &GpuProcess) -> DeviceLabel {
    let mut devices = snapshot.devices.iter();
    let device = devices.find(|device| device.id == process.device);
    DeviceLabel {
        id: process.device.clone(),
        index: device.map_or(0, |device| device.index),
        name: device.map_or(Reading::Unsupported, |device| device.name.clone()),
    }
}

/// The findings about the devices that the process holds and that concern it.
fn findings_about(
    pid: u32,
    devices: &[DeviceHolders],
    now: Timestamp,
) -> Vec<(u32, HolderFinding)> {
    let held = devices
        .iter()
        .filter(|device| device.holders.iter().any(|holder| holder.pid == pid));
    held.flat_map(|device| {
        let findings = find_causes(device, now)
            .into_iter()
            .filter(|finding| finding.pids.contains(&pid));
        findings.map(|finding| (device.index, finding))
    })
    .take(MAX_ENTRIES)
    .collect()
}

fn may_end(
    uses: &[(DeviceLabel, GpuProcess)],
    holds: &[(DeviceLabel, Holder, Role)],
    context: &ExplanationContext<'_>,
    principal_name: impl Fn(Principal) -> String,
) -> EndPermission {
    let listed = uses.first().map(|(_, process)| process);
    let open = holds.first().map(|(_, holder, _)| holder);
    let known = |listed: Option<&Reading<u32>>, open: Option<&Reading<u32>>| {
        let readings = [listed, open].into_iter().flatten();
        readings.filter_map(Reading::last_known).next().copied()
    };
    let owner = known(listed.map(|p| &p.uid), open.map(|h| &h.uid));
    let maker = listed
        .and_then(|process| process.namespace_owner.last_known().copied().flatten())
        .or(open.and_then(|holder| holder.namespace_owner.last_known().copied().flatten()));
    let uids = owner.map(Uids::from_single);
    let operation = Operation::End {
        uids,
        namespace_owner: maker,
    };
    let gone = listed
        .map(|p| &p.start_ticks)
        .or(open.map(|h| &h.start_ticks));
    let gone = gone.and_then(|start| match start {
        Reading::Failed(why) if why == LISTED_BEFORE_START => Some(LISTED_BEFORE_START),
        Reading::Failed(_) => Some("it does not exist on this host"),
        Reading::Stale(..) => Some("it has ended"),
        Reading::Value(_) | Reading::Unsupported | Reading::Withheld => None,
    });
    let never = context.protected.or(gone).or(context.disabled_reason);
    EndPermission {
        people: principals_allowed_to_end(uids, maker, context.roles)
            .into_iter()
            .map(principal_name)
            .collect(),
        includes_caller: check(context.caller, operation, context.roles) == Ruling::Allow,
        never_reason: never.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests;
