//! Divides the time of a device among the processes of each owner.

use super::BUSY_FROM;
use gpukill_proto::model::{Device, GpuProcess, OwnerKind};
use std::collections::BTreeMap;

/// The activity of a process during its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// The process was busy.
    Busy,
    /// Whether the process was busy is unknown.
    Unknown,
    /// The process held the device, and no process of its owner was busy.
    Idle,
}

/// The owner of a process. A process of an unknown owner has an owner of its own.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum OwnerKey<'a> {
    Owner(OwnerKind, Option<u32>, &'a str),
    Unknown(u32),
}

/// Divides `ms` among the processes of each owner.
pub(super) fn divide_time<'a>(
    device: &Device,
    processes: &[&'a GpuProcess],
    ms: u64,
) -> Vec<(&'a GpuProcess, Activity, u64)> {
    let mut owners: BTreeMap<OwnerKey<'a>, Vec<(&'a GpuProcess, Activity)>> = BTreeMap::new();
    for process in processes {
        let share = activity_of(device, process, processes.len() == 1);
        let of_owner = owners.entry(owner_key(process)).or_default();
        of_owner.push((process, share));
    }
    let mut shares = Vec::with_capacity(processes.len());
    for of_owner in owners.into_values() {
        // Busy processes come first, then processes of unknown activity.
        let Some(first) = of_owner.iter().map(|(_, share)| *share).min() else {
            continue;
        };
        let chosen = || of_owner.iter().filter(move |(_, share)| *share == first);
        let count = chosen().count() as u64;
        for (position, (process, share)) in (0..).zip(chosen()) {
            shares.push((*process, *share, part_of_ms(ms, position, count)));
        }
    }
    shares
}

/// Part `position` of `count` parts of `ms`; the parts add up to `ms`.
fn part_of_ms(ms: u64, position: u64, count: u64) -> u64 {
    let up_to = |parts: u64| {
        let ms = u128::from(ms) * u128::from(parts) / u128::from(count.max(1));
        u64::try_from(ms).unwrap_or(u64::MAX)
    };
    up_to(position + 1).saturating_sub(up_to(position))
}

fn owner_key(process: &GpuProcess) -> OwnerKey<'_> {
    match process.owner.last_known() {
        Some(owner) => OwnerKey::Owner(owner.kind, owner.uid, owner.name.as_str()),
        None => OwnerKey::Unknown(process.pid),
    }
}

/// Whether a process was busy. Where its own reading is unknown, the device decides: no
/// process is busy on an idle device, and a process that is alone on the device does
/// all its work.
fn activity_of(device: &Device, process: &GpuProcess, is_alone: bool) -> Activity {
    let is_explained = device
        .memory_unattributed
        .known()
        .is_some_and(|it| it.0 == 0);
    let own = process.utilization.known();
    let of_device = device.vitals.utilization.known();
    match (own, of_device) {
        (Some(own), _) if *own >= BUSY_FROM => Activity::Busy,
        (Some(_), _) => Activity::Idle,
        (None, Some(all)) if *all < BUSY_FROM => Activity::Idle,
        (None, Some(_)) if is_alone && is_explained => Activity::Busy,
        (None, Some(_) | None) => Activity::Unknown,
    }
}
