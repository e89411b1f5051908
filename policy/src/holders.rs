//! Explains memory that no process explains, and names what frees it.
//!
//! Each cause carries its evidence. An incomplete scan never counts as "no holder", a
//! stale reading decides nothing, and a suggested command names orphans only.

mod cause;
mod evidence_text;
pub(crate) mod program_names;
mod remedy;
mod role;

pub use role::{full_program_name, program_protection, role};

use gpukill_proto::holders::{
    Cause, DeviceHolders, EndedHolder, Holder, HolderFinding, Remedy, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Timestamp};
use role::{is_alive_and_listed, is_gone, is_zombie};

/// Returns the causes of unattributed memory, the likeliest first. Returns nothing
/// where all memory is explained and the device is not busy without a holder.
#[must_use]
pub fn find_causes(device: &DeviceHolders, now: Timestamp) -> Vec<HolderFinding> {
    let device_evidence = DeviceEvidence::new(device, now);
    if let Some(seconds) = oldest_reading_age(device) {
        let unexplained = unattributed_bytes(device, Reading::last_known);
        let stale = unexplained.filter(|bytes| bytes.0 > 0);
        return stale.map_or_else(Vec::new, |_| vec![cause::stale(&device_evidence, seconds)]);
    }
    let mut found = device_evidence
        .remainder
        .map_or_else(Vec::new, |remainder| {
            let tearing_down = cause::tearing_down(&device_evidence, remainder);
            let before = tearing_down
                .as_ref()
                .map_or(Bytes(0), |(_, before)| *before);
            let causes = [
                cause::orphans(&device_evidence),
                tearing_down.map(|(finding, _)| finding),
                cause::uninterruptible(&device_evidence),
                cause::zombie(&device_evidence),
                cause::other_namespace(&device_evidence),
                cause::mps(&device_evidence),
                cause::unlisted(&device_evidence),
                cause::display(&device_evidence),
            ];
            let mut found: Vec<HolderFinding> = causes.into_iter().flatten().collect();
            match found.as_slice() {
                [] => found.push(cause::unknown(&device_evidence, remainder)),
                // Teardown explains its own part only.
                [one] if one.cause == Cause::TearingDown && before > Bytes(0) => {
                    found.push(cause::unknown_earlier(&device_evidence, before));
                }
                [..] => {}
            }
            found
        });
    found.extend(cause::busy_without_holder(&device_evidence));
    if let Some(first) = found.first_mut() {
        first
            .evidence
            .extend(cause::missing_listed_pids(&device_evidence));
    }
    if device_evidence.remainder.is_some() {
        for finding in &mut found {
            let monitors = cause::monitors_by_name(&device_evidence, finding.cause);
            finding.evidence.extend(monitors);
        }
    }
    if let Some(why) = &device.incomplete_reason {
        for finding in &mut found {
            finding.evidence.push(cause::incomplete_scan_evidence(why));
        }
    }
    found
}

/// A device with the role of each holder.
struct DeviceEvidence<'a> {
    device: &'a DeviceHolders,
    roles: Vec<(&'a Holder, Role)>,
    now: Timestamp,
    /// The memory that no process on this host holds, where it is more than 0.
    remainder: Option<Bytes>,
}

impl<'a> DeviceEvidence<'a> {
    fn new(device: &'a DeviceHolders, now: Timestamp) -> Self {
        let holders = device.holders.iter();
        Self {
            device,
            roles: holders
                .map(|holder| (holder, role(holder, device)))
                .collect(),
            now,
            remainder: unattributed_bytes(device, Reading::known).filter(|bytes| bytes.0 > 0),
        }
    }

    fn holders_with_role(&self, is: impl Fn(Role) -> bool) -> Vec<&'a Holder> {
        let roles = self.roles.iter().filter(|(_, role)| is(*role));
        roles.map(|(holder, _)| *holder).collect()
    }

    fn build_finding(
        &self,
        cause: Cause,
        holders: &[&Holder],
        evidence: Vec<String>,
        remedy: Option<Remedy>,
    ) -> HolderFinding {
        let mut pids: Vec<u32> = holders.iter().map(|holder| holder.pid).collect();
        pids.truncate(MAX_PIDS);
        HolderFinding {
            cause,
            pids,
            evidence,
            remedy,
        }
    }

    fn ended(&self, pid: u32) -> Option<&'a EndedHolder> {
        self.device.ended.iter().find(|ended| ended.key.pid == pid)
    }
}

/// Maximum number of processes in a finding, so that it fits into a response and a
/// command line. After these have ended, the next scan finds the others.
const MAX_PIDS: usize = 1000;

/// Returns the unattributed memory plus the memory that the driver lists for ended
/// processes and for pids that do not exist here. The sum never exceeds the used memory
/// that the other processes leave.
fn unattributed_bytes(
    device: &DeviceHolders,
    value: impl Fn(&Reading<Bytes>) -> Option<&Bytes>,
) -> Option<Bytes> {
    let held = |is: fn(&Holder) -> bool| {
        let holders = device.holders.iter().filter(|holder| is(holder));
        let known = holders.filter_map(|holder| value(&holder.memory));
        known.fold(0u64, |sum, bytes| sum.saturating_add(bytes.0))
    };
    let unattributed = value(&device.memory_unattributed).map(|bytes| bytes.0);
    let gone = held(|holder| is_gone(holder) || (holder.listed && is_zombie(holder)));
    if unattributed.is_none() && gone == 0 {
        return None;
    }
    let sum = unattributed.unwrap_or(0).saturating_add(gone);
    let left = match value(&device.memory_used) {
        Some(used) if gone > 0 => used.0.saturating_sub(held(is_alive_and_listed)),
        Some(_) | None => sum,
    };
    Some(Bytes(sum.min(left)))
}

/// Returns the age of the oldest reading that explains memory, in seconds; `None` where
/// all readings are fresh.
fn oldest_reading_age(device: &DeviceHolders) -> Option<u32> {
    let listed = device.holders.iter().filter(|holder| holder.listed);
    let memories = listed.map(|holder| &holder.memory);
    let readings = memories.chain([&device.memory_unattributed, &device.memory_used]);
    let ages = readings.filter_map(|reading| match reading {
        Reading::Stale(_, seconds) => Some(*seconds),
        Reading::Value(_) | Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => None,
    });
    ages.max()
}

#[cfg(test)]
mod tests;
