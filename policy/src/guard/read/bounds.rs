//! The most of everything. What is above is a slip of the keyboard, or cannot be
//! kept: the daemon holds all rules in memory and tries them on every process.

use std::time::Duration;

/// Bytes of memory: 1 PiB, more than any box has.
pub(super) const MEMORY: u64 = 1 << 50;

const HOUR: u64 = 3_600;

/// The least time over which something is judged: samples are no shorter.
pub(super) const SHORTEST: Duration = Duration::from_secs(1);

/// The longest time a process may be said to run or idle: ten years.
pub(super) const LONGEST: Duration = Duration::from_secs(87_600 * HOUR);

/// The longest time over which something is measured: what is known of a process is
/// kept for as long.
pub(super) const WINDOW: Duration = Duration::from_secs(7 * 24 * HOUR);

/// The longest grace.
pub(super) const GRACE: Duration = Duration::from_secs(30 * 24 * HOUR);

/// Processes of one person: as many as Linux has pids.
pub(super) const PROCESSES: u64 = 1 << 22;

/// Warnings of one violation.
pub(super) const WARNINGS: u64 = 1_000;

/// Jobs that are ended in ten minutes.
pub(super) const ENDED: u64 = 10_000;

/// Bytes of a name.
pub(super) const NAME: usize = 255;

/// Bytes of a message.
pub(super) const MESSAGE: usize = 500;

/// Names in one list.
pub(super) const LIST: usize = 10_000;

/// Patterns in the whole file: each takes some kilobytes, and is tried on every
/// process. The largest that are read take 110 KiB each: measured, 2,000 of them made
/// the daemon 215 MB larger.
pub(super) const PATTERNS: usize = 1_000;

/// Devices that one range of indices means.
pub(super) const RANGE: u32 = 1_024;
