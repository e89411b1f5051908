//! What stands in the way of a reset, and who takes it away?

use super::{HelperCheck, Seen, ending};
use crate::holders::whole_name;
use crate::kill;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::holders::{HeldDevice, Holder};
use gpukill_proto::kill::{Fate, KillTarget, MOST_PIDS};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{Blocker, ResetRequest, Unblock};
use gpukill_proto::snapshot::{BackendState, Device, ProcessKey, Vendor};
use gpukill_proto::text::LISTED_BEFORE;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// So many are told of one device, so that a plan for a whole box fits an answer.
const MOST: usize = 64;

/// Everything, also what the daemon takes away by itself.
pub(super) fn blockers(
    device: &Device,
    peers: &[&Device],
    request: &ResetRequest,
    seen: &Seen<'_>,
    now: Timestamp,
) -> Vec<Blocker> {
    let mut all = Vec::new();
    for device in [device].iter().chain(peers) {
        let held = seen.kill.holders.iter().find(|held| held.id == device.id);
        match held {
            Some(held) => all.extend(of_holders(held, request, seen, now)),
            None => all.push(persons(format!(
                "who holds GPU {} is not known yet: try again in a moment",
                device.index
            ))),
        }
    }
    all.sort_indirect_by_key(|blocker| blocker.process);
    all.dedup_by_key(|blocker| blocker.process.map_or_else(|| blocker.what.clone(), text));
    // Those that only a person takes away come first: they must not be cut off.
    all.sort_indirect_by_key(|blocker| match blocker.remedy {
        Unblock::Person => 0,
        Unblock::Force => 1,
        Unblock::Daemon => 2,
    });
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    if more > 0 {
        all.push(persons(format!("{more} more processes: end some first")));
    }
    all.extend(of_the_device(device, seen));
    all
}

fn text(key: ProcessKey) -> String {
    format!("{} {}", key.pid, key.start_ticks)
}

/// What is no process.
fn of_the_device(device: &Device, seen: &Seen<'_>) -> Vec<Blocker> {
    let mut all = Vec::new();
    if let Some(HelperCheck::Busy(why)) = seen.checks.get(&device.id) {
        all.push(persons(why.clone()));
    }
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
        all.push(persons(format!(
            "MIG mode: {instances}; switch it off first: nvidia-smi -i {address} -mig 0"
        )));
    }
    let mut backends = seen.kill.snapshot.backends.iter();
    let backend = backends.find(|backend| backend.name == Vendor::Nvidia.name());
    if let Some(BackendState::Quiesced(_)) = backend.map(|backend| &backend.state) {
        all.push(persons(
            "somebody had gpukilld let go of the driver: gpukillctl resume".to_owned(),
        ));
    }
    if device.vitals.persistence.last_known() == Some(&true) {
        all.push(daemons("persistence mode"));
    }
    all.push(daemons("gpukilld's own sensor"));
    all
}

/// Whoever has it open, or uses it by the driver's list. Who has only files open
/// that all GPUs share does not keep this one from its reset.
fn of_holders(
    held: &HeldDevice,
    request: &ResetRequest,
    seen: &Seen<'_>,
    now: Timestamp,
) -> Vec<Blocker> {
    let holders = held.holders.iter();
    let holders: Vec<&Holder> = holders
        .filter(|holder| holder.listed || holder.holds_this_device)
        .filter(|holder| !is_the_sensor(holder, seen))
        .collect();
    let fates = fates(&holders, request, seen, now);
    holders
        .into_iter()
        .map(|holder| of_holder(holder, &fates))
        .collect()
}

fn is_the_sensor(holder: &Holder, seen: &Seen<'_>) -> bool {
    let daemon = seen.kill.protection.daemon;
    holder.pid == daemon || holder.parent.known() == Some(&daemon)
}

fn of_holder(holder: &Holder, fates: &Fates) -> Blocker {
    let who = who(holder);
    let Some(process) = key(holder) else {
        let why = match &holder.start_ticks {
            Reading::Failed(why) if why == LISTED_BEFORE => LISTED_BEFORE,
            Reading::Stale(..) => "it has ended, and its driver lists it still",
            Reading::Failed(_) | Reading::Value(_) | Reading::Unsupported | Reading::Withheld => {
                "no process here has this pid"
            }
        };
        return persons(format!("{who}: {why}"));
    };
    let name = holder.name.last_known().map_or("", |name| whole_name(name));
    let (why, remedy) = match fates.of(process) {
        // It lets go of a GPU whose persistence mode is switched off. One whose name is
        // not to be believed is not protected.
        Ok(Fate::Protected(_)) if name == "nvidia-persistenced" => {
            return of(process, who, Unblock::Daemon);
        }
        // Half a reset is worse than one that is waited for.
        _ if is_at_a_reset(holder) => (
            "it is resetting a GPU: try again when it has ended".to_owned(),
            Unblock::Person,
        ),
        Ok(Fate::End(_)) => return of(process, who, Unblock::Force),
        Ok(Fate::Protected(protected)) => (protected.why.clone(), Unblock::Person),
        Ok(Fate::Unclear(why)) => (why.clone(), Unblock::Person),
        Ok(Fate::Denied(ask)) => (format!("ask {ask}"), Unblock::Person),
        Ok(Fate::Zombie(parent)) => (
            format!("it has ended, and waits for its parent {}", parent.pid),
            Unblock::Person,
        ),
        Err(why) => (why.clone(), Unblock::Person),
    };
    let advice = advice(name).map_or_else(String::new, |advice| format!("; {advice}"));
    of(process, format!("{who}: {why}{advice}"), remedy)
}

/// Whether this is NVIDIA's tool at a reset, such as one whose helper was killed.
/// Root's alone: anybody can call a process so.
fn is_at_a_reset(holder: &Holder) -> bool {
    let is_reset = |word: &str| matches!(word, "--gpu-reset" | "-r");
    let command = holder.command.last_known();
    holder.uid.known() == Some(&0)
        && holder
            .name
            .last_known()
            .is_some_and(|it| it == "nvidia-smi")
        && command.is_some_and(|command| command.split_whitespace().any(is_reset))
}

/// How what is known to hold every GPU of a box is ended in order.
fn advice(name: &str) -> Option<&'static str> {
    Some(match name {
        "nv-hostengine" => "stop it first: systemctl stop nvidia-dcgm",
        "dcgm-exporter" => "stop it first: systemctl stop dcgm-exporter",
        "nv-fabricmanager" => {
            "stop it first, unless NVSwitches of Ampere need it: systemctl stop nvidia-fabricmanager"
        }
        "nvidia-cuda-mps-server" | "nvidia-cuda-mps-control" => {
            "end it first: echo quit | nvidia-cuda-mps-control"
        }
        _ => return None,
    })
}

/// `alice's python (pid 4711)`
fn who(holder: &Holder) -> String {
    let name = holder.name.last_known();
    let name = name.map_or("a process", |name| whole_name(name));
    let owner = holder.owner.last_known().map(|owner| owner.name.clone());
    let user = owner.or_else(|| holder.user.last_known().cloned());
    let pid = holder.pid;
    match user {
        Some(user) => format!("{user}'s {name} (pid {pid})"),
        None => format!("{name} (pid {pid})"),
    }
}

fn key(holder: &Holder) -> Option<ProcessKey> {
    let start_ticks = *holder.start_ticks.known()?;
    Some(ProcessKey {
        pid: holder.pid,
        start_ticks,
    })
}

/// What a kill with force has in store for each of them.
struct Fates {
    by_key: BTreeMap<ProcessKey, Fate>,
    /// Why nothing is known of the others.
    why: String,
}

impl Fates {
    fn of(&self, key: ProcessKey) -> Result<&Fate, &String> {
        self.by_key.get(&key).ok_or(&self.why)
    }
}

fn fates(holders: &[&Holder], request: &ResetRequest, seen: &Seen<'_>, now: Timestamp) -> Fates {
    let kill = &seen.kill;
    let is_there = |key: &ProcessKey| {
        let process = kill.crowd.get(&key.pid);
        process.is_some_and(|process| process.kin.key == *key)
    };
    let keys = holders.iter().filter_map(|holder| key(holder));
    let pids: Vec<u32> = keys.filter(is_there).map(|key| key.pid).collect();
    let mut fates = Fates {
        by_key: BTreeMap::new(),
        why: "it was not found when all processes were looked at".to_owned(),
    };
    for pids in pids.chunks(MOST_PIDS) {
        match kill::plan(&ending(pids.to_vec(), request), kill, now) {
            Ok(plan) => fates.by_key.extend(plan.targets.into_iter().map(fate)),
            Err(Refusal::Denied { ask, .. }) => fates.why = format!("ask {ask}"),
            Err(refusal) => fates.why = refusal.to_string(),
        }
    }
    fates
}

fn fate(target: KillTarget) -> (ProcessKey, Fate) {
    (target.key, target.fate)
}

fn of(process: ProcessKey, what: String, remedy: Unblock) -> Blocker {
    Blocker {
        process: Some(process),
        what,
        remedy,
    }
}

fn persons(what: String) -> Blocker {
    Blocker {
        process: None,
        what,
        remedy: Unblock::Person,
    }
}

fn daemons(what: &str) -> Blocker {
    Blocker {
        process: None,
        what: what.to_owned(),
        remedy: Unblock::Daemon,
    }
}
