//! The largest values. A larger one is a typing error, or cannot be held: the daemon keeps
//! all rules in memory and tests them against every process.

use std::time::Duration;

/// Bytes of memory: 1 PiB, more than any host has.
pub(super) const MAX_MEMORY: u64 = 1 << 50;

const HOUR: u64 = 3_600;

/// The shortest window: samples are no shorter.
pub(super) const MIN_WINDOW: Duration = Duration::from_secs(1);

/// The longest duration or idle limit: ten years.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(87_600 * HOUR);

/// The longest window: the measurements of a process are kept for as long.
pub(super) const MAX_WINDOW: Duration = Duration::from_secs(7 * 24 * HOUR);

pub(super) const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * HOUR);

/// Processes of one person: the number of pids on Linux.
pub(super) const MAX_PROCESSES: u64 = 1 << 22;

/// Warnings of one violation.
pub(super) const MAX_WARNINGS: u64 = 1_000;

/// Jobs ended in ten minutes.
pub(super) const MAX_ENDED: u64 = 10_000;

pub(super) const MAX_NAME_BYTES: usize = 255;

pub(super) const MAX_MESSAGE_BYTES: usize = 500;

/// Names in one list.
pub(super) const MAX_LIST_LENGTH: usize = 10_000;

/// Patterns in the whole file: each takes some kilobytes and is tested against every
/// process. The largest accepted patterns take 110 KiB each: in a measurement, 2,000 of
/// them made the daemon 215 MB larger.
pub(super) const MAX_PATTERNS: usize = 1_000;

/// Devices in one range of indices.
pub(super) const MAX_RANGE: u32 = 1_024;
