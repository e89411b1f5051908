//! Decides whether a device may be reset, and finds its blockers.
//!
//! In reading order: devices that cannot be reset ([`unsupported`]), all blockers
//! ([`blockers`]), whether a device responds afterwards ([`response`]), and the overall
//! result ([`outcome`]). The executor plans each device again ([`plan_device`]) right
//! before its reset.

mod blockers;
pub mod outcome;
pub mod response;
mod unsupported;

use crate::access::{Caller, Operation, Roles, Ruling, check};
use crate::kill;
use crate::select::{DeviceName, select_devices};
use gpukill_proto::kill::{KillRequest, KillSelector};
use gpukill_proto::model::{Device, DeviceId, Snapshot, Vendor};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{
    Blocker, PlannedReset, ResetPlan, ResetRequest, ResetTarget, Unblocker,
};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// The inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub struct ResetContext<'a> {
    /// The inputs of a kill plan: the caller, the devices, their holders, and
    /// protection.
    pub kill: kill::KillContext<'a>,
    /// The hive of each device that is in one, or why it is unknown: all devices of a hive
    /// are reset together (AMD: XGMI).
    pub hives: &'a BTreeMap<DeviceId, Result<Hive, String>>,
    /// The checks of the helper, which performs the last step, for each of the
    /// [`selected_devices`] that it can reset.
    pub checks: &'a BTreeMap<DeviceId, HelperCheck>,
}

/// A hive of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hive {
    /// Its name.
    pub name: String,
    /// The PCI addresses of its members that the snapshot does not have.
    pub unlisted: Vec<String>,
}

/// The helper's report for a reset that has not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelperCheck {
    /// The reset can begin.
    Possible,
    /// The reset is not possible here; with the reason.
    Refused(String),
    /// The reset is not possible now; with the reason.
    Busy(String),
    /// No helper answers; with the attempt.
    NoAnswer(String),
}

/// Checks whether this caller may reset devices.
///
/// # Errors
/// [`Refusal::Denied`].
pub fn may_reset(caller: &Caller, roles: &Roles, operators: &str) -> Result<(), Refusal> {
    if check(caller, Operation::Reset, roles) == Ruling::Allow {
        return Ok(());
    }
    Err(Refusal::Denied {
        asked: "reset a GPU".into(),
        ask: format!("root, or someone in group {operators}"),
    })
}

/// Returns the plan for this request.
///
/// # Errors
/// [`Refusal::Denied`]; [`Refusal::Invalid`] where the selector names a device that does
/// not exist or is ambiguous; [`Refusal::NoMatch`] where no device matches its pattern.
pub fn plan(
    request: &ResetRequest,
    context: &ResetContext<'_>,
    now: Timestamp,
) -> Result<ResetPlan, Refusal> {
    let kill = &context.kill;
    may_reset(kill.caller, kill.roles, kill.operators)?;
    let wanted = selected_devices(request, kill.snapshot)?;
    let wanted = wanted.into_iter();
    Ok(ResetPlan {
        at: now,
        request: request.clone(),
        devices: wanted
            .map(|device| plan_device(device, request, context, now))
            .collect(),
    })
}

/// Returns the selected devices.
///
/// # Errors
/// [`Refusal::NoMatch`] and [`Refusal::Invalid`], as [`plan`].
pub fn selected_devices<'a>(
    request: &ResetRequest,
    snapshot: &'a Snapshot,
) -> Result<Vec<&'a Device>, Refusal> {
    let all = &snapshot.devices;
    let Some(typed) = request.gpu.as_deref() else {
        return if all.is_empty() {
            Err(Refusal::NoMatch("there is no GPU here".into()))
        } else {
            Ok(all.iter().collect())
        };
    };
    let names: Vec<DeviceName<'_>> = all.iter().map(DeviceName::from).collect();
    let chosen = select_devices(typed, &names)?;
    let positions = all.iter().enumerate();
    let chosen = positions.filter(|(position, _)| chosen.contains(position));
    Ok(chosen.map(|(_, device)| device).collect())
}

/// Plans the reset of one device, from the current state.
#[must_use]
pub fn plan_device(
    device: &Device,
    request: &ResetRequest,
    context: &ResetContext<'_>,
    now: Timestamp,
) -> ResetTarget {
    let peers = peers(device, context);
    let (blockers, action) = match unsupported::unsupported_reason(device) {
        Some(why) => (Vec::new(), PlannedReset::Unsupported(why)),
        None => {
            let blockers = blockers::blockers(device, &peers, request, context, now);
            let action = match unsupported::helper_refusal(device, context) {
                Some(why) => PlannedReset::Unsupported(why),
                None => planned_action(&blockers, request),
            };
            (blockers, action)
        }
    };
    ResetTarget {
        device: device.id.clone(),
        index: device.index,
        name: device.name.clone(),
        vendor: device.vendor,
        pci: device.pci.clone(),
        notes: match action {
            PlannedReset::Unsupported(_) => Vec::new(),
            PlannedReset::Reset | PlannedReset::Blocked => notes(device, context),
        },
        blockers,
        peers: peers.iter().map(|peer| peer.index).collect(),
        action,
    }
}

fn planned_action(blockers: &[Blocker], request: &ResetRequest) -> PlannedReset {
    let remains = |blocker: &Blocker| match blocker.remedy {
        Unblocker::Daemon => false,
        Unblocker::Force => !request.force,
        Unblocker::Person => true,
    };
    if blockers.iter().any(remains) {
        PlannedReset::Blocked
    } else {
        PlannedReset::Reset
    }
}

/// The other devices that are reset with it.
fn peers<'a>(device: &Device, context: &ResetContext<'a>) -> Vec<&'a Device> {
    let Some(hive) = known_hive(device, context) else {
        return Vec::new();
    };
    let is_peer = |other: &&Device| {
        other.id != device.id && known_hive(other, context).is_some_and(|it| it.name == hive.name)
    };
    let all = context.kill.snapshot.devices.iter();
    all.filter(is_peer).collect()
}

fn known_hive<'a>(device: &Device, context: &ResetContext<'a>) -> Option<&'a Hive> {
    context.hives.get(&device.id)?.as_ref().ok()
}

/// Why a device is not reset by a plan that a person has confirmed: other devices would be reset
/// with it than the plan names. `None` if they are the same.
#[must_use]
pub fn changed_peers(planned: &ResetTarget, now: &ResetTarget) -> Option<String> {
    let names = |peers: &[u32]| {
        let peers: Vec<String> = peers.iter().map(|index| format!("GPU {index}")).collect();
        match peers.is_empty() {
            true => "no other".to_owned(),
            false => peers.join(", "),
        }
    };
    (planned.peers != now.peers).then(|| {
        format!(
            "the GPUs that are reset with it changed: {} by the plan, {} now: nothing was done",
            names(&planned.peers),
            names(&now.peers)
        )
    })
}

/// Maximum number of unlisted members of a hive that are named: a hive has at most 16.
const MAX_NOTED_MEMBERS: usize = 16;

/// Notes that a person should read before consenting.
fn notes(device: &Device, context: &ResetContext<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let others = context.kill.snapshot.devices.iter();
    let is_alone = others.filter(|it| it.vendor == device.vendor).count() == 1;
    match device.vendor {
        // Source: nvidia-smi(1), --gpu-reset.
        Vendor::Nvidia if !is_alone => notes.push(
            "its NVLinks are not known: before Ampere, or without the fabric manager that its \
            NVSwitches need, it cannot be reset without its peers"
                .to_owned(),
        ),
        Vendor::Amd => {
            notes.push(
                "all processes on it are aborted, and the contents of its memory are lost"
                    .to_owned(),
            );
        }
        Vendor::Nvidia | Vendor::Intel | Vendor::Apple | Vendor::Other => {}
    }
    if let Some(hive) = known_hive(device, context) {
        notes.extend(hive.unlisted.iter().take(MAX_NOTED_MEMBERS).map(|address| {
            format!(
                "the device at {address} is reset too: gpukill does not list it, nor the processes \
                 on it; the helper resets no device that a process holds"
            )
        }));
    }
    let held = context
        .kill
        .holders
        .iter()
        .find(|held| held.id == device.id);
    if let Some(why) = held.and_then(|held| held.incomplete_reason.as_ref()) {
        notes.push(format!(
            "there may be other holders: {why}; the helper scans again and resets no device that \
            a process holds"
        ));
    }
    notes
}

/// Returns the kill request for the blockers of this device that `--force` ends; `None`
/// where there are none.
#[must_use]
pub fn force_kill_request(target: &ResetTarget, request: &ResetRequest) -> Option<KillRequest> {
    let forced = target.blockers.iter();
    let forced = forced.filter(|blocker| blocker.remedy == Unblocker::Force);
    let pids: Vec<u32> = forced
        .filter_map(|blocker| blocker.process.map(|key| key.pid))
        .collect();
    (request.force && !pids.is_empty()).then(|| kill_request(pids, request))
}

/// A kill request for exactly these pids, with force.
fn kill_request(pids: Vec<u32>, request: &ResetRequest) -> KillRequest {
    KillRequest {
        selector: KillSelector {
            pids,
            ..KillSelector::default()
        },
        force: true,
        signal_timeout_ms: request.signal_timeout_ms,
        ..KillRequest::default()
    }
}

#[cfg(test)]
mod tests;
