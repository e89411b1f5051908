//! All that is known of one process, put together for this caller.

mod ruled;

pub(super) use ruled::Judged;

use super::holder_pages;
use super::snapshot_pages;
use crate::host::condition::Condition;
use crate::state::Published;
use gpukill_policy::access::{Caller, Operation, Person, Roles, Ruling, Uids, check, who_may_end};
use gpukill_policy::holders::{findings, role};
use gpukill_policy::memory::{Sharing, held_at_least};
use gpukill_proto::holders::{
    DeviceLabel, Explanation, Finding, HeldDevice, Holder, MayEnd, ProcessState, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{BackendState, DeviceId, GpuProcess, Snapshot};
use gpukill_proto::text::LISTED_BEFORE;
use gpukill_proto::units::{Bytes, Timestamp};
use ruled::ruled;
use std::collections::BTreeSet;
use std::path::Path;

/// So many devices, or parts of them, are told of one process: more than a box
/// has.
const MOST: usize = 256;

/// Who asks, and what they may.
pub(super) struct Asker<'a> {
    pub(super) caller: &'a Caller,
    pub(super) roles: &'a Roles,
    /// Why this daemon may end no process, whoever asks.
    pub(super) will_not_act: Option<&'a str>,
    /// Why nobody ends this process, whoever asks.
    pub(super) protected: Option<&'a str>,
    /// What the guard knows.
    pub(super) judged: Judged<'a>,
}

/// What is known of this process; `None` where it uses no device and has none
/// open. `called` gives a person's name.
pub(super) fn explain(
    published: &Published,
    pid: u32,
    now: Timestamp,
    asker: &Asker<'_>,
    called: impl Fn(Person) -> String,
) -> Option<Explanation> {
    let snapshot = &published.snapshot;
    let uses: Vec<(DeviceLabel, GpuProcess)> = snapshot
        .processes
        .iter()
        .filter(|process| process.pid == pid)
        .map(|process| {
            let shown = snapshot_pages::shown_to(asker.caller, asker.roles, process);
            (label(snapshot, process), shown)
        })
        .take(MOST)
        .collect();
    let holds: Vec<(DeviceLabel, Holder, Role)> = published
        .holders
        .iter()
        .flat_map(|device| of_pid(device, pid))
        .map(|(device, holder)| {
            let shown = holder_pages::shown_to(asker.caller, asker.roles, holder);
            (device.label(), shown, role(holder, device))
        })
        .take(MOST)
        .collect();
    if uses.is_empty() && holds.is_empty() {
        return None;
    }
    let (shared_with, shared) = sharers(pid, &published.holders);
    let own = uses
        .iter()
        .filter(|(label, _)| !shared.contains(&&label.id));
    Some(Explanation {
        at: now,
        pid,
        frees: held_at_least(own.map(|(_, process)| alone(published, process))),
        shared_with,
        may_end: may_end(&uses, &holds, asker, called),
        findings: that_name(pid, &published.holders, now),
        guard: ruled(snapshot, pid, asker),
        rogue: Reading::Unsupported,
        uses,
        holds,
    })
}

/// Why there is nothing to tell of a process that no device knows: there is none,
/// it has ended, it uses none; or no driver tells of any.
pub(super) fn nothing_of(published: &Published, procfs: &Path, pid: u32) -> Refusal {
    let unseen = published.holders.iter().any(|held| held.unseen.is_some());
    let condition = Condition::of(procfs, pid);
    Refusal::NoMatch(match condition {
        // Where not everybody is seen, it may be here.
        None if !unseen => format!("there is no process {pid}"),
        Some(condition) if condition.state.known() == Some(&ProcessState::Zombie) => {
            let parent = condition.parent.known();
            let parent = parent.map_or_else(String::new, |parent| format!(" {parent}"));
            let name = condition.parent_name.known();
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            format!("process {pid} has ended, and its parent{parent}{name} has not asked how")
        }
        Some(_) | None => {
            if let Some(failed) = failure(&published.snapshot) {
                return Refusal::Unavailable(failed);
            }
            format!("no process {pid} uses a GPU or has one open")
        }
    })
}

/// Why no device is known, where a driver failed that may have some.
fn failure(snapshot: &Snapshot) -> Option<String> {
    let mut backends = snapshot.backends.iter();
    let failed = backends.find_map(|backend| match &backend.state {
        BackendState::Failed(_, why) => Some(format!("{} failed: {why}", backend.name)),
        BackendState::Starting => Some(format!("{} has not answered yet", backend.name)),
        BackendState::Ready | BackendState::Absent(_) | BackendState::Quiesced(_) => None,
    });
    failed.filter(|_| snapshot.devices.is_empty())
}

/// What a process holds of a device, and nobody else does.
fn alone(published: &Published, process: &GpuProcess) -> Reading<Bytes> {
    let sharing = process.key().and_then(|key| {
        let on = (process.device.clone(), key);
        published.sharing.get(&on).copied()
    });
    sharing.unwrap_or(Sharing::NONE).alone(&process.memory)
}

/// Who has the same clients of devices open as this process, and of which
/// devices.
fn sharers(pid: u32, devices: &[HeldDevice]) -> (Vec<u32>, Vec<&DeviceId>) {
    let mut pids = BTreeSet::new();
    let mut shared = Vec::new();
    for device in devices {
        let own = of_pid(device, pid).find_map(|(_, holder)| holder.shares_with);
        // For whom the memory is counted.
        let counted = own.unwrap_or(pid);
        let others = device.holders.iter().filter(|holder| {
            holder.pid != pid && (holder.pid == counted || holder.shares_with == Some(counted))
        });
        let others: Vec<u32> = others.map(|holder| holder.pid).collect();
        if !others.is_empty() {
            shared.push(&device.id);
        }
        pids.extend(others);
    }
    (pids.into_iter().take(MOST).collect(), shared)
}

fn of_pid(device: &HeldDevice, pid: u32) -> impl Iterator<Item = (&HeldDevice, &Holder)> {
    let holders = device.holders.iter();
    holders
        .filter(move |holder| holder.pid == pid)
        .map(move |holder| (device, holder))
}

fn label(snapshot: &Snapshot, process: &GpuProcess) -> DeviceLabel {
    let mut devices = snapshot.devices.iter();
    let device = devices.find(|device| device.id == process.device);
    DeviceLabel {
        id: process.device.clone(),
        index: device.map_or(0, |device| device.index),
        name: device.map_or(Reading::Unsupported, |device| device.name.clone()),
    }
}

/// What is found of the devices that it holds, and is about it.
fn that_name(pid: u32, devices: &[HeldDevice], now: Timestamp) -> Vec<(u32, Finding)> {
    let held = devices
        .iter()
        .filter(|device| device.holders.iter().any(|holder| holder.pid == pid));
    held.flat_map(|device| {
        let about_it = findings(device, now)
            .into_iter()
            .filter(|finding| finding.pids.contains(&pid));
        about_it.map(|finding| (device.index, finding))
    })
    .take(MOST)
    .collect()
}

fn may_end(
    uses: &[(DeviceLabel, GpuProcess)],
    holds: &[(DeviceLabel, Holder, Role)],
    asker: &Asker<'_>,
    called: impl Fn(Person) -> String,
) -> MayEnd {
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
    let uids = owner.map(Uids::all);
    let operation = Operation::End {
        uids,
        namespace_owner: maker,
    };
    let gone = listed
        .map(|p| &p.start_ticks)
        .or(open.map(|h| &h.start_ticks));
    let gone = gone.and_then(|start| match start {
        Reading::Failed(why) if why == LISTED_BEFORE => Some(LISTED_BEFORE),
        Reading::Failed(_) => Some("there is no such process here"),
        Reading::Stale(..) => Some("it has ended"),
        Reading::Value(_) | Reading::Unsupported | Reading::Withheld => None,
    });
    let never = asker.protected.or(gone).or(asker.will_not_act);
    MayEnd {
        people: who_may_end(uids, maker, asker.roles)
            .into_iter()
            .map(called)
            .collect(),
        you: check(asker.caller, operation, asker.roles) == Ruling::Allow,
        never: never.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests;
