//! Whose time a device's time is.

use super::BUSY_FROM;
use gpukill_proto::snapshot::{Device, GpuProcess, OwnerKind};
use std::collections::BTreeMap;

/// What a process did with its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    /// It worked.
    Busy,
    /// Whether it worked is not known.
    Unknown,
    /// It held the device, and none of its owner's worked.
    Idle,
}

/// Whom a process belongs to. One whose owner is not known has one of its own.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Whose<'a> {
    Owner(OwnerKind, Option<u32>, &'a str),
    Nobody(u32),
}

/// Shares `ms` out among the processes of each owner.
pub(super) fn shares<'a>(
    device: &Device,
    processes: &[&'a GpuProcess],
    ms: u64,
) -> Vec<(&'a GpuProcess, Share, u64)> {
    let mut owners: BTreeMap<Whose<'a>, Vec<(&'a GpuProcess, Share)>> = BTreeMap::new();
    for process in processes {
        let share = did(device, process, processes.len() == 1);
        let of_owner = owners.entry(whose(process)).or_default();
        of_owner.push((process, share));
    }
    let mut shares = Vec::with_capacity(processes.len());
    for of_owner in owners.into_values() {
        // Those that worked come first, and those of whom nothing is known next.
        let Some(first) = of_owner.iter().map(|(_, share)| *share).min() else {
            continue;
        };
        let chosen = || of_owner.iter().filter(move |(_, share)| *share == first);
        let count = chosen().count() as u64;
        for (position, (process, share)) in (0..).zip(chosen()) {
            shares.push((*process, *share, part(ms, position, count)));
        }
    }
    shares
}

/// One of `count` parts of `ms`, which together are `ms`.
fn part(ms: u64, position: u64, count: u64) -> u64 {
    let up_to = |parts: u64| {
        let ms = u128::from(ms) * u128::from(parts) / u128::from(count.max(1));
        u64::try_from(ms).unwrap_or(u64::MAX)
    };
    up_to(position + 1).saturating_sub(up_to(position))
}

fn whose(process: &GpuProcess) -> Whose<'_> {
    match process.owner.last_known() {
        Some(owner) => Whose::Owner(owner.kind, owner.uid, owner.name.as_str()),
        None => Whose::Nobody(process.pid),
    }
}

/// Whether a process worked. Where that is not told of it, the device tells:
/// nobody works on one that is idle, and who is alone on it does all its work.
fn did(device: &Device, process: &GpuProcess, is_alone: bool) -> Share {
    let is_explained = device
        .memory_unattributed
        .known()
        .is_some_and(|it| it.0 == 0);
    let own = process.utilization.known();
    let of_device = device.vitals.utilization.known();
    match (own, of_device) {
        (Some(own), _) if *own >= BUSY_FROM => Share::Busy,
        (Some(_), _) => Share::Idle,
        (None, Some(all)) if *all < BUSY_FROM => Share::Idle,
        (None, Some(_)) if is_alone && is_explained => Share::Busy,
        (None, Some(_) | None) => Share::Unknown,
    }
}
