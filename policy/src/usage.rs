//! Measures how long and how much each process used each device over an interval, in
//! sums that add up.
//!
//! One poll is an interval; a sample is the sum of some polls, a minute of some
//! samples, an hour of sixty minutes. [`Usage::merge`] adds intervals without loss or
//! double counting, in any order of steps. The daemon stores the sums in `store::blob`, so
//! a new value also needs a new version of the blob.

mod cpu;
pub mod findings;
mod gauge;
pub mod job_runs;
pub mod label;
mod share;
pub mod stretch;
#[cfg(test)]
mod tests;

pub use cpu::{CPU_STEPS, CpuUse};
pub use gauge::Gauge;

use gpukill_proto::audit::UsageState;
use gpukill_proto::model::{Device, DeviceId, GpuProcess, InstanceId, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Percent, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Utilization below this counts as idle: a desktop that shows a clock reaches 1 or 2
/// %.
pub const BUSY_FROM: Percent = Percent(5);

/// Number of intervals without a poll that count as a gap: the host was suspended, or
/// the daemon hung. The usage in a gap is unknown.
const GAP_INTERVALS: u32 = 3;

/// The usage in an interval. `D` names a device and `R` a process on it: ids here, row
/// numbers in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage<D: Ord, R: Ord> {
    /// Start of the interval, by the wall clock.
    pub from: Timestamp,
    /// End of the interval, by the wall clock.
    pub until: Timestamp,
    /// The covered part of the interval, by a monotonic clock.
    pub seen_ms: u64,
    /// Every device that was present.
    pub devices: BTreeMap<D, DeviceUsage>,
    /// Every process that used one of them.
    pub runs: BTreeMap<R, RunUsage>,
}

/// One process on one device. A process that uses two devices has two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRun {
    /// The device.
    pub device: DeviceId,
    /// The instance, where the device is divided.
    pub instance: Option<InstanceId>,
    /// The pid of the process.
    pub pid: u32,
    /// Identifies the process together with `pid`; `None` when the process did not
    /// exist or no longer exists.
    pub start_ticks: Option<u64>,
    /// The start time of a process that has ended and that the driver still lists: its
    /// memory is recorded for its owner, and no rule is evaluated for it.
    pub ended: Option<u64>,
}

/// How a device was used. Its time is busy, held, free or unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    /// The index at the end of the interval.
    pub index: u32,
    /// Time at or above [`BUSY_FROM`].
    pub busy_ms: u64,
    /// Time in which it was held and idle.
    pub held_ms: u64,
    /// Time in which no process held it.
    pub free_ms: u64,
    /// Time in which the device was held with unknown utilization, or in which it is
    /// unknown whether an idle device was held.
    pub unknown_ms: u64,
    /// Bytes held by all processes.
    pub memory: Gauge,
    /// Percent.
    pub utilization: Gauge,
    /// Milliwatts.
    pub power: Gauge,
    /// The highest known temperature in degrees Celsius.
    pub hottest: Option<i32>,
}

/// How a process used a device.
///
/// `busy_ms`, `idle_ms` and `unknown_ms` divide the time of the process's owner on the
/// device, so that the sum over an owner's processes is the time that the owner held
/// it, however many processes did so at once. The time goes to the busy processes, else
/// to those of unknown activity, else to all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunUsage {
    /// Time in which it held the device.
    pub held_ms: u64,
    /// Its share of its owner's time while it was busy.
    pub busy_ms: u64,
    /// Its share while neither it nor another process of its owner was busy.
    pub idle_ms: u64,
    /// Its share while that is unknown.
    pub unknown_ms: u64,
    /// Bytes of device memory.
    pub memory: Gauge,
    /// Percent.
    pub utilization: Gauge,
    /// Connections of clients to its listening ports.
    pub connections: Gauge,
    /// Its processor time.
    pub cpu: CpuUse,
}

/// Returns how much of the time since the last poll a poll covers.
#[must_use]
pub fn covered_time(since_last_poll: Option<Duration>, interval: Duration) -> Duration {
    match since_last_poll {
        Some(since) if since <= interval.saturating_mul(GAP_INTERVALS) => since,
        // After a gap, as at the start, a poll covers only its own moment.
        Some(_) | None => Duration::ZERO,
    }
}

impl<D: Ord + Clone, R: Ord + Clone> Usage<D, R> {
    /// Usage over no time yet.
    #[must_use]
    pub const fn starting_at(at: Timestamp) -> Self {
        Self {
            from: at,
            until: at,
            seen_ms: 0,
            devices: BTreeMap::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Adds a later interval.
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

impl Usage<DeviceId, DeviceRun> {
    /// Adds a poll, which covers the time `observed` before it. A device with stale
    /// readings adds nothing, and neither do its processes.
    pub fn add(&mut self, snapshot: &Snapshot, observed: Duration) {
        let seen_ms = u64::try_from(observed.as_millis()).unwrap_or(u64::MAX);
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
                let usage = self
                    .runs
                    .entry(DeviceRun::from_process(process))
                    .or_default();
                usage.add(process, ms);
            }
            for (process, share, ms) in share::divide_time(device, &processes, ms) {
                let usage = self
                    .runs
                    .entry(DeviceRun::from_process(process))
                    .or_default();
                *match share {
                    share::Activity::Busy => &mut usage.busy_ms,
                    share::Activity::Idle => &mut usage.idle_ms,
                    share::Activity::Unknown => &mut usage.unknown_ms,
                } += ms;
            }
        }
    }
}

/// Whether the device was read at this poll.
pub(crate) fn is_fresh(device: &Device) -> bool {
    let is_old = matches!(device.memory_used, Reading::Stale(..))
        || matches!(device.process_count, Reading::Stale(..));
    device.lost.is_none() && !is_old
}

impl DeviceRun {
    /// The process and device of this entry.
    #[must_use]
    pub fn from_process(process: &GpuProcess) -> Self {
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
            // No list shows whether a process holds the device.
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

    /// The covered time.
    #[must_use]
    pub const fn covered_ms(&self) -> u64 {
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

    /// Adds a poll at which the device did not report its processes: it adds no time,
    /// and memory and activity are unknown.
    pub fn mark_unreported(&mut self) {
        for gauge in [
            &mut self.memory,
            &mut self.utilization,
            &mut self.connections,
        ] {
            gauge.is_failed = true;
        }
    }

    /// Adds a later interval.
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

    /// The time in which the process itself was busy, and in which it was idle, of the time in which
    /// it held the device. The rest is unknown. The shares are exact where they are all of that
    /// time; with other processes of its owner, its mean utilization decides.
    #[must_use]
    pub fn process_times(&self) -> (u64, u64) {
        if self.owner_share_ms() >= self.held_ms {
            return (self.busy_ms, self.idle_ms);
        }
        match self.state() {
            UsageState::Busy => (self.held_ms, 0),
            UsageState::Idle => (0, self.held_ms),
            UsageState::Unknown => (self.busy_ms, 0),
        }
    }

    /// Its share of its owner's time on the device.
    #[must_use]
    pub const fn owner_share_ms(&self) -> u64 {
        let known = self.busy_ms.saturating_add(self.idle_ms);
        known.saturating_add(self.unknown_ms)
    }
}
