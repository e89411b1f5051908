//! The input of an evaluation: the usage of every device by every process in one interval
//! of time.
//!
//! Live it is made of a sample, in a replay of what the store kept of that sample. Both
//! hold the same, and nothing else may matter to a rule.

pub use super::facts::ProcessFacts;
use super::schedule::LocalTime;
use crate::usage::{DeviceUsage, RunUsage};
use gpukill_proto::guard::RunKey;
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Usage in one interval of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardSample {
    /// When it began, by the wall clock.
    pub from: Timestamp,
    /// When it ended, by the wall clock.
    pub until: Timestamp,
    /// Observed milliseconds of the interval; 0 in the first sample after a gap, which
    /// describes a moment only.
    pub observed_ms: u64,
    /// When it began, in local time: an hour from eight to nine is no part of what begins
    /// at nine.
    pub local_time: LocalTime,
    /// Every device that was present.
    pub devices: BTreeMap<DeviceId, DeviceSample>,
    /// Every process on every device that it used.
    pub runs: BTreeMap<Arc<RunKey>, RunSample>,
}

/// A device in one interval of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSample {
    /// Index at the end.
    pub index: u32,
    /// Name, if known.
    pub name: Option<String>,
    /// PCI address, if known.
    pub pci: Option<String>,
    /// Memory without the driver's reserve; `None` if unknown.
    pub memory: Option<Bytes>,
    /// Whether its memory is the host's: shares of it mean nothing.
    pub is_unified: bool,
    /// How it was used.
    pub usage: DeviceUsage,
}

/// A process on a device in one interval of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSample {
    /// Facts about the process.
    pub facts: Arc<ProcessFacts>,
    /// Since when it is known to hold the device.
    pub first_seen: Timestamp,
    /// How it used the device.
    pub usage: RunUsage,
    /// Whether it still held the device at the end.
    pub is_present: bool,
}

/// Since when a process that was first seen at `first_seen` holds its device: no longer
/// than it is alive. The kernel reports its start by the current wall clock, so that a
/// clock that is set forward makes no process older. The store keeps the last reported
/// start: it says nothing about a moment before the clock was set.
#[must_use]
pub fn held_since(
    first_seen: Timestamp,
    started_at: Option<Timestamp>,
    until: Timestamp,
) -> Timestamp {
    let started_at = started_at.filter(|it| *it <= until);
    started_at.map_or(first_seen, |started| {
        first_seen.max(Timestamp(started.0.saturating_sub(START_TOLERANCE_MS)))
    })
}

/// Milliseconds: a process that starts within a sample counts from the beginning of the
/// sample, and the kernel reports the boot time in whole seconds.
const START_TOLERANCE_MS: i64 = 60_000;
