//! How long each process used each device, and how much of it: what a stretch of
//! time looked like, in sums that add up.
//!
//! One poll is a stretch; a sample is the sum of some polls, a minute of some
//! samples, an hour of sixty minutes. [`Usage::merge`] adds, and nothing is lost
//! or counted twice, in whatever steps it is added.

mod cpu;

mod gauge;

pub mod label;

mod share;

#[cfg(test)]
mod tests;

pub use cpu::{CPU_STEPS, CpuUse};
pub use gauge::Gauge;

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, InstanceId, Snapshot};
use gpukill_proto::units::{Percent, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// A device or process below this does nothing: a desktop that shows a clock
/// comes to 1 or 2 %.
pub const BUSY_FROM: Percent = Percent(5);

/// So many intervals without a poll are a gap: the box slept, or the daemon
/// hung. What was used then is not known.
const GAP: u32 = 3;

/// What was used in a stretch of time. `D` names a device and `R` a process on
/// it: their ids here, numbers of rows in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage<D: Ord, R: Ord> {
    /// When the stretch began, by the wall clock.
    pub from: Timestamp,
    /// When it ended, by the wall clock.
    pub until: Timestamp,
    /// How much of it was seen, by a clock that never jumps.
    pub seen_ms: u64,
    /// Every device that was there.
    pub devices: BTreeMap<D, DeviceUsage>,
    /// Every process that used one of them.
    pub runs: BTreeMap<R, RunUsage>,
}

/// One process on one device. A process that uses two devices runs twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The device.
    pub device: DeviceId,
    /// The part of it, where it is divided.
    pub instance: Option<InstanceId>,
    /// The process's pid.
    pub pid: u32,
    /// With `pid` it names the process; `None` when there was no such process, or none
    /// any more.
    pub start_ticks: Option<u64>,
    /// The same of a process that has ended and that the driver lists still: what it holds
    /// is recorded as its owner's, and no rule is judged by it.
    pub ended: Option<u64>,
}

/// How one device was used. Its time is busy, held, free or unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Its index at the end.
    pub index: u32,
    /// How long it was worked on: at least [`BUSY_FROM`].
    pub busy_ms: u64,
    /// How long it was held and not worked on.
    pub held_ms: u64,
    /// How long nobody held it.
    pub free_ms: u64,
    /// How long it was held and nobody knows whether it was worked on, or whether
    /// it was held and nobody worked on it.
    pub unknown_ms: u64,
    /// Bytes held, by whomever.
    pub memory: Gauge,
    /// Percent.
    pub utilization: Gauge,
    /// Milliwatts.
    pub power: Gauge,
    /// The highest temperature in degrees Celsius, where one was known.
    pub hottest: Option<i32>,
}

/// How one process used one device.
///
/// `busy_ms`, `idle_ms` and `unknown_ms` share out the time of the process's
/// owner on the device, so that the sum over an owner's runs is the time they
/// held it, however many of their processes did at once: it goes to those that
/// worked, else to those of whom it is not known, else to all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunUsage {
    /// How long it held the device.
    pub held_ms: u64,
    /// Its share of its owner's time while it worked.
    pub busy_ms: u64,
    /// Its share while it did not, and none of theirs did.
    pub idle_ms: u64,
    /// Its share while that is not known.
    pub unknown_ms: u64,
    /// Bytes of device memory.
    pub memory: Gauge,
    /// Percent.
    pub utilization: Gauge,
    /// Connections of clients to the ports it listens on.
    pub connections: Gauge,
    /// The processor time that it took.
    pub cpu: CpuUse,
}

/// How much of the time since the poll before a poll tells of.
#[must_use]
pub fn seen(since_last_poll: Option<Duration>, interval: Duration) -> Duration {
    match since_last_poll {
        Some(since) if since <= interval.saturating_mul(GAP) => since,
        // After a gap it is as at the start: it tells of this moment only.
        Some(_) | None => Duration::ZERO,
    }
}

impl<D: Ord + Clone, R: Ord + Clone> Usage<D, R> {
    /// Of no time yet.
    #[must_use]
    pub const fn starting(at: Timestamp) -> Self {
        Self {
            from: at,
            until: at,
            seen_ms: 0,
            devices: BTreeMap::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Adds what came after.
    pub fn merge(&mut self, later: &Self) {
        self.from = self.from.min(later.from);
        self.until = self.until.max(later.until);
        self.seen_ms = self.seen_ms.saturating_add(later.seen_ms);
        for (device, usage) in &later.devices {
            match self.devices.get_mut(device) {
                Some(sum) => sum.merge(usage),
                None => {
                    self.devices.insert(device.clone(), usage.clone());
                }
            }
        }
        for (run, usage) in &later.runs {
            match self.runs.get_mut(run) {
                Some(sum) => sum.merge(usage),
                None => {
                    self.runs.insert(run.clone(), usage.clone());
                }
            }
        }
    }
}

impl Usage<DeviceId, Run> {
    /// Adds a poll, which tells of the time `seen` before it. A device whose
    /// readings are old tells nothing, and neither do its processes.
    pub fn add(&mut self, snapshot: &Snapshot, seen: Duration) {
        let seen_ms = u64::try_from(seen.as_millis()).unwrap_or(u64::MAX);
        self.from = self.from.min(snapshot.taken_at);
        self.until = self.until.max(snapshot.taken_at);
        self.seen_ms = self.seen_ms.saturating_add(seen_ms);
        for device in &snapshot.devices {
            let processes: Vec<&GpuProcess> = snapshot
                .processes
                .iter()
                .filter(|process| process.device == device.id)
                .collect();
            let ms = if is_fresh(device) { seen_ms } else { 0 };
            let usage = self.devices.entry(device.id.clone()).or_default();
            usage.add(device, &processes, ms);
            for process in &processes {
                let usage = self.runs.entry(Run::of(process)).or_default();
                usage.add(process, ms);
            }
            for (process, share, ms) in share::shares(device, &processes, ms) {
                let usage = self.runs.entry(Run::of(process)).or_default();
                *match share {
                    share::Share::Busy => &mut usage.busy_ms,
                    share::Share::Idle => &mut usage.idle_ms,
                    share::Share::Unknown => &mut usage.unknown_ms,
                } += ms;
            }
        }
    }
}

/// Whether a device was read at this poll.
pub(crate) fn is_fresh(device: &Device) -> bool {
    let is_old = matches!(device.memory_used, Reading::Stale(..))
        || matches!(device.process_count, Reading::Stale(..));
    device.lost.is_none() && !is_old
}

impl Run {
    /// The one that this is.
    #[must_use]
    pub fn of(process: &GpuProcess) -> Self {
        Self {
            device: process.device.clone(),
            instance: process.instance,
            pid: process.pid,
            start_ticks: process.start_ticks.known().copied(),
            ended: match process.start_ticks {
                Reading::Stale(start_ticks, _) => Some(start_ticks),
                Reading::Value(_)
                | Reading::Unsupported
                | Reading::Failed(_)
                | Reading::Withheld => None,
            },
        }
    }
}

impl DeviceUsage {
    fn add(&mut self, device: &Device, processes: &[&GpuProcess], ms: u64) {
        self.index = device.index;
        let rest = device.memory_unattributed.known().map(|rest| rest.0 > 0);
        let is_held = match (processes.is_empty(), rest) {
            (false, _) | (true, Some(true)) => Some(true),
            (true, Some(false)) => Some(false),
            // No list says that nobody is on it.
            (true, None) => device.process_count.known().map(|_| false),
        };
        let is_busy = device.vitals.utilization.known().map(|it| *it >= BUSY_FROM);
        *match (is_busy, is_held) {
            (Some(true), _) => &mut self.busy_ms,
            (Some(false), Some(true)) => &mut self.held_ms,
            (Some(false) | None, Some(false)) => &mut self.free_ms,
            (None, Some(true)) | (Some(false) | None, None) => &mut self.unknown_ms,
        } += ms;
        self.memory.add(&device.memory_used, ms, |it| it.0);
        self.utilization
            .add(&device.vitals.utilization, ms, |it| u64::from(it.0));
        self.power.add(&device.vitals.power, ms, |it| it.0);
        let now = device.vitals.temperature.known().map(|it| it.0);
        self.hottest = self.hottest.max(now);
    }

    fn merge(&mut self, later: &Self) {
        self.index = later.index;
        for (sum, more) in [
            (&mut self.busy_ms, later.busy_ms),
            (&mut self.held_ms, later.held_ms),
            (&mut self.free_ms, later.free_ms),
            (&mut self.unknown_ms, later.unknown_ms),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.memory.merge(&later.memory);
        self.utilization.merge(&later.utilization);
        self.power.merge(&later.power);
        self.hottest = self.hottest.max(later.hottest);
    }

    /// How much of the time it was seen.
    #[must_use]
    pub const fn seen_ms(&self) -> u64 {
        let held = self.busy_ms.saturating_add(self.held_ms);
        held.saturating_add(self.free_ms)
            .saturating_add(self.unknown_ms)
    }
}

impl RunUsage {
    fn add(&mut self, process: &GpuProcess, ms: u64) {
        self.held_ms = self.held_ms.saturating_add(ms);
        self.memory.add(&process.memory, ms, |it| it.0);
        self.utilization
            .add(&process.utilization, ms, |it| u64::from(it.0));
        self.connections
            .add(&process.connections, ms, |it| u64::from(*it));
        self.cpu.add(&process.cpu);
    }

    /// A poll at which its device did not tell who uses it: that is no time, and what
    /// it held and did is not known.
    pub fn is_untold(&mut self) {
        for gauge in [
            &mut self.memory,
            &mut self.utilization,
            &mut self.connections,
        ] {
            gauge.is_failed = true;
        }
    }

    /// Adds what came after.
    pub fn merge(&mut self, later: &Self) {
        for (sum, more) in [
            (&mut self.held_ms, later.held_ms),
            (&mut self.busy_ms, later.busy_ms),
            (&mut self.idle_ms, later.idle_ms),
            (&mut self.unknown_ms, later.unknown_ms),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.memory.merge(&later.memory);
        self.utilization.merge(&later.utilization);
        self.connections.merge(&later.connections);
        self.cpu.merge(later.cpu);
    }

    /// Its share of its owner's time on the device.
    #[must_use]
    pub const fn shared_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }
}
