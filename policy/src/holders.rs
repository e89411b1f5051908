//! Whose is the memory that no process explains, and what frees it?
//!
//! Each cause says what was seen that speaks for it. What was not looked at is
//! never taken for "nobody", what was read a while ago decides nothing, and a
//! command names orphans only.

mod cause;

pub(crate) mod names;

mod remedy;

mod role;

mod words;

pub use role::{protection, role, whole_name};

use gpukill_proto::holders::{Cause, EndedHolder, Finding, HeldDevice, Holder, Remedy, Role};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Timestamp};
use role::{is_gone, is_zombie, lives_and_is_listed};

/// Whose it is, the likeliest first. Nothing where no memory is unexplained and
/// the device is not busy by itself.
#[must_use]
pub fn findings(device: &HeldDevice, now: Timestamp) -> Vec<Finding> {
    let seen = Seen::new(device, now);
    if let Some(seconds) = oldest(device) {
        let unexplained = unexplained(device, Reading::last_known);
        let stale = unexplained.filter(|bytes| bytes.0 > 0);
        return stale.map_or_else(Vec::new, |_| vec![cause::stale(&seen, seconds)]);
    }
    let mut found = seen.remainder.map_or_else(Vec::new, |remainder| {
        let torn = cause::tearing_down(&seen, remainder);
        let before = torn.as_ref().map_or(Bytes(0), |(_, before)| *before);
        let causes = [
            cause::orphans(&seen),
            torn.map(|(finding, _)| finding),
            cause::uninterruptible(&seen),
            cause::zombie(&seen),
            cause::other_namespace(&seen),
            cause::mps(&seen),
            cause::unlisted(&seen),
            cause::display(&seen),
        ];
        let mut found: Vec<Finding> = causes.into_iter().flatten().collect();
        match found.as_slice() {
            [] => found.push(cause::unknown(&seen, remainder)),
            // That explains its own part only.
            [one] if one.cause == Cause::TearingDown && before > Bytes(0) => {
                found.push(cause::unknown_before(&seen, before));
            }
            [..] => {}
        }
        found
    });
    found.extend(cause::busy_alone(&seen));
    if let Some(first) = found.first_mut() {
        first.evidence.extend(cause::listed_and_gone(&seen));
    }
    if seen.remainder.is_some() {
        for finding in &mut found {
            let monitors = cause::monitors_by_name(&seen, finding.cause);
            finding.evidence.extend(monitors);
        }
    }
    if let Some(why) = &device.unseen {
        for finding in &mut found {
            finding.evidence.push(cause::others_may_hold_it(why));
        }
    }
    found
}

/// A device, and what each of its holders is.
struct Seen<'a> {
    device: &'a HeldDevice,
    roles: Vec<(&'a Holder, Role)>,
    now: Timestamp,
    /// What no process here is known to hold, where that is more than nothing.
    remainder: Option<Bytes>,
}

impl<'a> Seen<'a> {
    fn new(device: &'a HeldDevice, now: Timestamp) -> Self {
        let holders = device.holders.iter();
        Self {
            device,
            roles: holders
                .map(|holder| (holder, role(holder, device)))
                .collect(),
            now,
            remainder: unexplained(device, Reading::known).filter(|bytes| bytes.0 > 0),
        }
    }

    fn having(&self, is: impl Fn(Role) -> bool) -> Vec<&'a Holder> {
        let roles = self.roles.iter().filter(|(_, role)| is(*role));
        roles.map(|(holder, _)| *holder).collect()
    }

    fn finding(
        &self,
        cause: Cause,
        holders: &[&Holder],
        evidence: Vec<String>,
        remedy: Option<Remedy>,
    ) -> Finding {
        let mut pids: Vec<u32> = holders.iter().map(|holder| holder.pid).collect();
        pids.truncate(MOST);
        Finding {
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

/// So many processes are in one finding: it has to fit an answer, and a command
/// line. When they have ended, the next look finds the others.
const MOST: usize = 1000;

/// What is unattributed, and what the driver lists under pids that are no
/// processes here, or of processes that have ended; never more than what the
/// others leave of the used memory.
fn unexplained(
    device: &HeldDevice,
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
        Some(used) if gone > 0 => used.0.saturating_sub(held(lives_and_is_listed)),
        Some(_) | None => sum,
    };
    Some(Bytes(sum.min(left)))
}

/// How old the oldest of the readings is from which memory is explained, in
/// seconds; `None` where they are as of now.
fn oldest(device: &HeldDevice) -> Option<u32> {
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
