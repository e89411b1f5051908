//! May a device be reset, and what stands in the way?
//!
//! In reading order: devices that cannot be reset ([`unsupported`]), everything
//! that stands in the way ([`blockers`]), whether one answers afterwards
//! ([`answering`]), and how it went as a whole ([`success`]).
//! Whoever resets makes a new [`target`] just before.

mod unsupported;

mod blockers;

pub mod answering;

pub mod success;

use crate::access::{Caller, Operation, Roles, Ruling, check};
use crate::kill;
use crate::select::{DeviceName, NoSuchDevice, devices};
use gpukill_proto::kill::{KillRequest, KillSelector};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{Blocker, ResetFate, ResetPlan, ResetRequest, ResetTarget, Unblock};
use gpukill_proto::snapshot::{Device, DeviceId, Snapshot, Vendor};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// Everything that a plan is made of.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// What a kill would be planned by: who asks, the devices, who holds them, and
    /// what nobody ends.
    pub kill: kill::Seen<'a>,
    /// Of each device that has one, the name of its hive: all its members are
    /// reset together (AMD: XGMI).
    pub hives: &'a BTreeMap<DeviceId, String>,
    /// What the helper, which does the last step, says of each device that is
    /// [`wanted`] and that it knows how to reset.
    pub checks: &'a BTreeMap<DeviceId, HelperCheck>,
}

/// What the helper says of a reset that it is not to begin yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelperCheck {
    /// It could begin.
    Possible,
    /// It cannot be done here; says why.
    Refused(String),
    /// Not now; says why.
    Busy(String),
    /// There is no helper, or it does not answer; says what was tried.
    NoAnswer(String),
}

/// May this caller reset devices?
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

/// What would be done for this request.
///
/// # Errors
/// [`Refusal::Denied`]; [`Refusal::NoMatch`] and [`Refusal::Invalid`] where no
/// device is called so, or several begin so.
pub fn plan(request: &ResetRequest, seen: &Seen<'_>, now: Timestamp) -> Result<ResetPlan, Refusal> {
    let kill = &seen.kill;
    may_reset(kill.caller, kill.roles, kill.operators)?;
    let wanted = wanted(request, kill.snapshot)?;
    let wanted = wanted.into_iter();
    Ok(ResetPlan {
        at: now,
        request: request.clone(),
        devices: wanted
            .map(|device| target(device, request, seen, now))
            .collect(),
    })
}

/// The devices that are meant.
///
/// # Errors
/// [`Refusal::NoMatch`] and [`Refusal::Invalid`], as [`plan`].
pub fn wanted<'a>(
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
    let chosen = devices(typed, &names).map_err(|error| match error {
        NoSuchDevice::Unknown { .. } => Refusal::NoMatch(error.to_string()),
        NoSuchDevice::Ambiguous { .. } | NoSuchDevice::Backwards { .. } => {
            Refusal::Invalid(error.to_string())
        }
    })?;
    let positions = all.iter().enumerate();
    let chosen = positions.filter(|(position, _)| chosen.contains(position));
    Ok(chosen.map(|(_, device)| device).collect())
}

/// One device, by what is seen now.
#[must_use]
pub fn target(
    device: &Device,
    request: &ResetRequest,
    seen: &Seen<'_>,
    now: Timestamp,
) -> ResetTarget {
    let peers = peers(device, seen);
    let (blockers, fate) = match unsupported::by_nature(device) {
        Some(why) => (Vec::new(), ResetFate::Unsupported(why)),
        None => {
            let blockers = blockers::blockers(device, &peers, request, seen, now);
            let fate = match unsupported::by_helper(device, seen) {
                Some(why) => ResetFate::Unsupported(why),
                None => fate(&blockers, request),
            };
            (blockers, fate)
        }
    };
    ResetTarget {
        device: device.id.clone(),
        index: device.index,
        name: device.name.clone(),
        vendor: device.vendor,
        pci: device.pci.clone(),
        notes: match fate {
            ResetFate::Unsupported(_) => Vec::new(),
            ResetFate::Reset | ResetFate::Blocked => notes(device, seen),
        },
        blockers,
        peers: peers.iter().map(|peer| peer.index).collect(),
        fate,
    }
}

fn fate(blockers: &[Blocker], request: &ResetRequest) -> ResetFate {
    let stands = |blocker: &Blocker| match blocker.remedy {
        Unblock::Daemon => false,
        Unblock::Force => !request.force,
        Unblock::Person => true,
    };
    if blockers.iter().any(stands) {
        ResetFate::Blocked
    } else {
        ResetFate::Reset
    }
}

/// The others that are reset with it.
fn peers<'a>(device: &Device, seen: &Seen<'a>) -> Vec<&'a Device> {
    let Some(hive) = seen.hives.get(&device.id) else {
        return Vec::new();
    };
    let all = seen.kill.snapshot.devices.iter();
    all.filter(|other| other.id != device.id && seen.hives.get(&other.id) == Some(hive))
        .collect()
}

/// What is to be known before somebody agrees.
fn notes(device: &Device, seen: &Seen<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let others = seen.kill.snapshot.devices.iter();
    let is_alone = others.filter(|it| it.vendor == device.vendor).count() == 1;
    match device.vendor {
        // nvidia-smi(1), --gpu-reset.
        Vendor::Nvidia if !is_alone => notes.push(
            "whether it has NVLinks is not known: before Ampere, or without the fabric manager \
             that its NVSwitches need, it cannot be reset without its peers"
                .to_owned(),
        ),
        Vendor::Amd => {
            notes.push("all that uses it is aborted, and what its memory holds is lost".to_owned());
        }
        Vendor::Nvidia | Vendor::Intel | Vendor::Apple | Vendor::Other => {}
    }
    let held = seen.kill.holders.iter().find(|held| held.id == device.id);
    if let Some(why) = held.and_then(|held| held.unseen.as_ref()) {
        notes.push(format!(
            "there may be other holders: {why}; the helper looks again, and resets nothing that \
             somebody holds"
        ));
    }
    notes
}

/// The kill that takes the blockers of this device away that `--force` ends;
/// `None` where there is none.
#[must_use]
pub fn forced(target: &ResetTarget, request: &ResetRequest) -> Option<KillRequest> {
    let forced = target.blockers.iter();
    let forced = forced.filter(|blocker| blocker.remedy == Unblock::Force);
    let pids: Vec<u32> = forced
        .filter_map(|blocker| blocker.process.map(|key| key.pid))
        .collect();
    (request.force && !pids.is_empty()).then(|| ending(pids, request))
}

/// Ends exactly these, whatever it takes.
fn ending(pids: Vec<u32>, request: &ResetRequest) -> KillRequest {
    KillRequest {
        selector: KillSelector {
            pids,
            ..KillSelector::default()
        },
        force: true,
        patience_ms: request.patience_ms,
        ..KillRequest::default()
    }
}

#[cfg(test)]
mod tests;
