//! Finds the blockers of a reset, and decides how each can be removed.

use super::{HelperCheck, ResetContext, kill_request};
use crate::holders::full_program_name;
use crate::kill;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::holders::{DeviceHolders, Holder};
use gpukill_proto::kill::{MAX_PIDS, PlannedAction};
use gpukill_proto::model::{BackendState, Device, ProcessKey, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{Blocker, ResetRequest, Unblocker};
use gpukill_proto::text::LISTED_BEFORE_START;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// Maximum number of blockers of a device, so that a plan for a whole host fits into a
/// response.
const MAX_BLOCKERS: usize = 64;

/// Returns all blockers, including those that the daemon removes itself.
pub(super) fn blockers(
    device: &Device,
    peers: &[&Device],
    request: &ResetRequest,
    context: &ResetContext<'_>,
    now: Timestamp,
) -> Vec<Blocker> {
    let mut all = Vec::new();
    for affected in [device].iter().chain(peers) {
        let held = context
            .kill
            .holders
            .iter()
            .find(|held| held.id == affected.id);
        match held {
            Some(held) => {
                let of_device = holder_blockers(held, request, context, now).into_iter();
                all.extend(of_device.map(|blocker| match affected.id == device.id {
                    true => blocker,
                    false => Blocker {
                        what: format!("on GPU {}: {}", affected.index, blocker.what),
                        ..blocker
                    },
                }));
            }
            None => all.push(blocker_for_person(format!(
                "the holders of GPU {} are not known yet: try again in a moment",
                affected.index
            ))),
        }
    }
    all.sort_indirect_by_key(|blocker| blocker.process);
    all.dedup_by_key(|blocker| blocker.process.ok_or_else(|| blocker.what.clone()));
    // Blockers that only a person removes come first, so that they are not cut off.
    all.sort_indirect_by_key(|blocker| match blocker.remedy {
        Unblocker::Person => 0,
        Unblocker::Force => 1,
        Unblocker::Daemon => 2,
    });
    let more = all.len().saturating_sub(MAX_BLOCKERS);
    all.truncate(MAX_BLOCKERS);
    if more > 0 {
        all.push(blocker_for_person(format!(
            "{more} more processes: end some first"
        )));
    }
    all.extend(device_blockers(device, context));
    all
}

/// Blockers that are not processes.
fn device_blockers(device: &Device, context: &ResetContext<'_>) -> Vec<Blocker> {
    let mut all = Vec::new();
    if let Some(HelperCheck::Busy(why)) = context.checks.get(&device.id) {
        all.push(blocker_for_person(why.clone()));
    }
    all.extend(hive_blockers(device, context));
    if device.vendor != Vendor::Nvidia {
        return all;
    }
    let address = device.pci.last_known().map_or("", String::as_str);
    if device.vitals.mig.last_known() == Some(&true) {
        let instances = match device.instances.len() {
            0 => "a reset may end it".to_owned(),
            1 => "its instance would be gone after a reset".to_owned(),
            many => format!("its {many} instances would be gone after a reset"),
        };
        all.push(blocker_for_person(format!(
            "MIG mode: {instances}; switch it off first: nvidia-smi -i {address} -mig 0"
        )));
    }
    let mut backends = context.kill.snapshot.backends.iter();
    let backend = backends.find(|backend| backend.name == Vendor::Nvidia.name());
    if let Some(BackendState::Quiesced(_)) = backend.map(|backend| &backend.state) {
        all.push(blocker_for_person(
            "gpukilld was asked to release the driver: run gpukillctl resume".to_owned(),
        ));
    }
    if device.vitals.persistence.last_known() == Some(&true) {
        all.push(blocker_for_daemon("persistence mode"));
    }
    all.push(blocker_for_daemon("gpukilld's own sensor"));
    all
}

/// Hives that cannot be read: it is unknown which devices a reset affects.
fn hive_blockers(device: &Device, context: &ResetContext<'_>) -> Vec<Blocker> {
    match context.hives.get(&device.id) {
        None => return Vec::new(),
        Some(Err(why)) => {
            let what = format!("which GPUs are reset with it is not known: {why}");
            return vec![blocker_for_person(what)];
        }
        Some(Ok(_)) => {}
    }
    let others = context.kill.snapshot.devices.iter();
    let unknown = others.filter_map(|other| {
        let why = context.hives.get(&other.id)?.as_ref().err()?;
        Some(blocker_for_person(format!(
            "whether GPU {} is reset with it is not known: {why}",
            other.index
        )))
    });
    unknown.collect()
}

/// Processes that have the device open, or use it by the driver's list. Files that all
/// GPUs share do not prevent a reset.
fn holder_blockers(
    held: &DeviceHolders,
    request: &ResetRequest,
    context: &ResetContext<'_>,
    now: Timestamp,
) -> Vec<Blocker> {
    let holders: Vec<&Holder> = held
        .holders
        .iter()
        .filter(|holder| holder.listed || holder.holds_this_device)
        .filter(|holder| !is_the_sensor(holder, context))
        .collect();
    let planned_actions = plan_actions(&holders, request, context, now);
    holders
        .into_iter()
        .map(|holder| holder_blocker(holder, &planned_actions))
        .collect()
}

fn is_the_sensor(holder: &Holder, context: &ResetContext<'_>) -> bool {
    let daemon = context.kill.protection.daemon;
    holder.pid == daemon || holder.parent.known() == Some(&daemon)
}

fn holder_blocker(holder: &Holder, planned_actions: &PlannedActions) -> Blocker {
    let holder_text = describe_holder(holder);
    let Some(process) = process_key(holder) else {
        let why = match &holder.start_ticks {
            Reading::Failed(why) if why == LISTED_BEFORE_START => LISTED_BEFORE_START,
            Reading::Stale(..) => "it has ended, and its driver still lists it",
            Reading::Failed(_) | Reading::Value(_) | Reading::Unsupported | Reading::Withheld => {
                "no process here has this pid"
            }
        };
        return blocker_for_person(format!("{holder_text}: {why}"));
    };
    let name = holder
        .name
        .last_known()
        .map_or("", |name| full_program_name(name));
    let (why, remedy) = match planned_actions.get(process) {
        // nvidia-persistenced releases a GPU when its persistence mode is switched off. A
        // process with an untrusted name is not protected.
        Ok(PlannedAction::Protected(_)) if name == "nvidia-persistenced" => {
            return process_blocker(process, holder_text, Unblocker::Daemon);
        }
        // An interrupted reset is worse than waiting for it.
        _ if is_running_reset(holder) => (
            "it is resetting a GPU: try again when it has ended".to_owned(),
            Unblocker::Person,
        ),
        Ok(PlannedAction::End(_)) => {
            return process_blocker(process, holder_text, Unblocker::Force);
        }
        Ok(PlannedAction::Protected(protected)) => (protected.why.clone(), Unblocker::Person),
        Ok(PlannedAction::Unclear(why)) => (why.clone(), Unblocker::Person),
        Ok(PlannedAction::Denied(ask)) => (format!("ask {ask}"), Unblocker::Person),
        Ok(PlannedAction::Zombie(parent)) => (
            format!(
                "it has ended, and its parent {} has not reaped it",
                parent.pid
            ),
            Unblocker::Person,
        ),
        Err(why) => (why.clone(), Unblocker::Person),
    };
    let advice = advice(name).map_or_else(String::new, |advice| format!("; {advice}"));
    process_blocker(process, format!("{holder_text}: {why}{advice}"), remedy)
}

/// Whether this is nvidia-smi during a reset, for example after its helper was killed.
/// Only a process of root counts, because anyone can use the name.
fn is_running_reset(holder: &Holder) -> bool {
    let is_reset = |word: &str| matches!(word, "--gpu-reset" | "-r");
    let command = holder.command.last_known();
    holder.uid.known() == Some(&0)
        && holder
            .name
            .last_known()
            .is_some_and(|it| it == "nvidia-smi")
        && command.is_some_and(|command| command.split_whitespace().any(is_reset))
}

/// How to end known programs that hold every GPU of a host.
fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "nv-hostengine" => "stop it first: systemctl stop nvidia-dcgm",
        "dcgm-exporter" => "stop it first: systemctl stop dcgm-exporter",
        "nv-fabricmanager" => {
            "stop it first, unless NVSwitches of Ampere need it: systemctl stop \
            nvidia-fabricmanager"
        }
        "nvidia-cuda-mps-server" | "nvidia-cuda-mps-control" => {
            "end it first: echo quit | nvidia-cuda-mps-control"
        }
        _ => return None,
    })
}

/// Example: `alice's python (pid 4711)`
fn describe_holder(holder: &Holder) -> String {
    let name = holder.name.last_known();
    let name = name.map_or("a process", |name| full_program_name(name));
    let owner = holder.owner.last_known().map(|owner| owner.name.clone());
    let user = owner.or_else(|| holder.user.last_known().cloned());
    let pid = holder.pid;
    match user {
        Some(user) => format!("{user}'s {name} (pid {pid})"),
        None => format!("{name} (pid {pid})"),
    }
}

fn process_key(holder: &Holder) -> Option<ProcessKey> {
    let start_ticks = *holder.start_ticks.known()?;
    Some(ProcessKey {
        pid: holder.pid,
        start_ticks,
    })
}

/// The action that a kill with force plans for each process.
struct PlannedActions {
    by_key: BTreeMap<ProcessKey, PlannedAction>,
    /// Why the action for other processes is unknown.
    why: String,
}

impl PlannedActions {
    fn get(&self, key: ProcessKey) -> Result<&PlannedAction, &String> {
        self.by_key.get(&key).ok_or(&self.why)
    }
}

fn plan_actions(
    holders: &[&Holder],
    request: &ResetRequest,
    context: &ResetContext<'_>,
    now: Timestamp,
) -> PlannedActions {
    let kill = &context.kill;
    let is_there = |key: &ProcessKey| {
        let process = kill.processes.get(&key.pid);
        process.is_some_and(|process| process.lineage.key == *key)
    };
    let keys = holders.iter().filter_map(|holder| process_key(holder));
    let pids: Vec<u32> = keys.filter(is_there).map(|key| key.pid).collect();
    let mut planned_actions = PlannedActions {
        by_key: BTreeMap::new(),
        why: "it was not found in the process table".to_owned(),
    };
    for pids in pids.chunks(MAX_PIDS) {
        match kill::plan(&kill_request(pids.to_vec(), request), kill, now) {
            Ok(plan) => planned_actions
                .by_key
                .extend(plan.targets.into_iter().map(|it| (it.key, it.action))),
            Err(Refusal::Denied { ask, .. }) => planned_actions.why = format!("ask {ask}"),
            Err(refusal) => planned_actions.why = refusal.to_string(),
        }
    }
    planned_actions
}

fn process_blocker(process: ProcessKey, what: String, remedy: Unblocker) -> Blocker {
    Blocker {
        process: Some(process),
        what,
        remedy,
    }
}

fn blocker_for_person(what: String) -> Blocker {
    Blocker {
        process: None,
        what,
        remedy: Unblocker::Person,
    }
}

fn blocker_for_daemon(what: &str) -> Blocker {
    Blocker {
        process: None,
        what: what.to_owned(),
        remedy: Unblocker::Daemon,
    }
}
