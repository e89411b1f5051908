//! Adds up samples to how each process used its devices recently, as a [`DeviceLoad`].
//! Live, it is fed with each sample; for a scan of the past, with the stored samples.

use super::suspect::{DeviceLoad, HeldMemory, UtilizationShares};
use crate::guard::sample::GuardSample;
use crate::round_robin::interleave;
use crate::usage::RunUsage;
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _, SortIndirect as _};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of tracked processes. Each owner gets an equal part, or room for all
/// their processes.
pub const MAX_PROCESSES: usize = 4_096;

/// Maximum number of processes that are kept after they left their devices, each with
/// up to some KiB. Each owner gets an equal part here too.
const MAX_DEPARTED: usize = 128;

/// Number of parts of the window. When it is full, the oldest part is dropped.
const WINDOW_PARTS: usize = 6;

/// Time after which an absent process is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(3_600);

/// Maximum number of memory levels distinguished in one part of the window.
const MAX_LEVELS: usize = 8;

/// One process on one device in one sample.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSample<'a> {
    /// The process.
    pub process: ProcessKey,
    /// The uid of the owner, or a name where the owner has no uid; `None` where it is
    /// unknown.
    pub owner: Option<(Option<u32>, &'a str)>,
    /// Since when the process holds the device, as far as observed.
    pub held_since: Timestamp,
    /// How the process used the device.
    pub usage: &'a RunUsage,
    /// The host CPUs that the process kept busy, in thousandths of one CPU.
    pub host_cpu: Option<u32>,
}

/// The loads of all tracked processes.
#[derive(Debug, Clone)]
pub struct LoadTracker {
    /// The length of one part of the window; `None` for an unlimited window.
    part: Option<Duration>,
    processes: BTreeMap<ProcessKey, ProcessHistory>,
}

#[derive(Debug, Clone)]
struct ProcessHistory {
    owner: Option<(Option<u32>, String)>,
    held_since: Timestamp,
    until: Timestamp,
    /// The oldest first.
    parts: Vec<WindowPart>,
}

/// Sums over a part of the window.
#[derive(Debug, Clone, Default)]
struct WindowPart {
    seen_ms: u64,
    /// The time in which the utilization was known, and its distribution.
    known_ms: u64,
    saturated_ms: u64,
    idle_ms: u64,
    percent_ms: u64,
    /// The same for host CPUs.
    cpu_known_ms: u64,
    cpu_thousandths_ms: u64,
    /// The least and the most memory.
    memory: Option<(u64, u64)>,
    memory_known_ms: u64,
    /// Time at each memory level; levels without room are dropped.
    levels: Vec<(u64, u64)>,
}

/// The use that a process made of all its devices in one sample.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessMoment<'a> {
    owner: Option<(Option<u32>, &'a str)>,
    held_since: Timestamp,
    /// The utilization of the device that it used most.
    percent: Option<u64>,
    /// On all devices; `None` where it is unknown for one device.
    memory: Option<u64>,
    host_cpu: Option<u32>,
}

impl LoadTracker {
    /// A tracker for this window. The covered time varies between the window and one
    /// sixth less.
    #[must_use]
    pub fn with_window(window: Duration) -> Self {
        Self {
            part: Some(window / u32::try_from(WINDOW_PARTS).unwrap_or(1)),
            processes: BTreeMap::new(),
        }
    }

    /// A tracker with an unlimited window.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            part: None,
            processes: BTreeMap::new(),
        }
    }

    /// Adds a sample that covers `seen_ms` milliseconds before `until`. A process
    /// without room is not tracked.
    pub fn add<'a>(
        &mut self,
        until: Timestamp,
        seen_ms: u64,
        stretches: impl IntoIterator<Item = ProcessSample<'a>>,
    ) {
        let moments = moments(stretches);
        for (process, moment) in &moments {
            self.processes
                .entry(*process)
                .or_insert_with(|| ProcessHistory {
                    owner: moment.owner.map(|(uid, name)| (uid, name.to_owned())),
                    held_since: moment.held_since,
                    until,
                    parts: Vec::new(),
                });
        }
        self.make_room();
        for (process, moment) in moments {
            let Some(past) = self.processes.get_mut(&process) else {
                continue;
            };
            past.held_since = past.held_since.min(moment.held_since);
            past.until = past.until.max(until);
            past.add(self.part, seen_ms, moment);
        }
    }

    /// Forgets processes above the limit. Of each owner, the processes that were
    /// tracked before stay.
    fn make_room(&mut self) {
        if self.processes.len() <= MAX_PROCESSES {
            return;
        }
        let all = self.processes.iter();
        let mut all: Vec<(&ProcessKey, &ProcessHistory)> = all.collect();
        all.sort_indirect_by_key(|(_, past)| past.parts.is_empty());
        let all = all.into_iter().map(|(key, past)| (&past.owner, *key));
        let kept: BTreeSet<ProcessKey> = interleave(all).into_iter().take(MAX_PROCESSES).into_set();
        self.retain_processes(|process| kept.contains(process));
    }

    /// Adds a stored sample. The store does not know host CPUs.
    pub fn add_stored(&mut self, sample: &GuardSample) {
        let stretches = sample.runs.iter().map(|(run, run_sample)| ProcessSample {
            process: run.process(),
            owner: run_sample.facts.owner.as_ref().map(|owner| {
                let name = owner.uid.map_or(owner.name.as_str(), |_| "");
                (owner.uid, name)
            }),
            held_since: run_sample.first_seen,
            usage: &run_sample.usage,
            host_cpu: None,
        });
        self.add(sample.until, sample.observed_ms, stretches);
    }

    /// Returns how a process used its devices; `None` for an untracked process.
    #[must_use]
    pub fn load_of(&self, process: ProcessKey) -> Option<DeviceLoad> {
        let past = self.processes.get(&process)?;
        let mut all = WindowPart::default();
        for part in &past.parts {
            all.merge(part);
        }
        Some(DeviceLoad {
            held: past.until.since(past.held_since),
            seen: Duration::from_millis(all.seen_ms),
            utilization: all.utilization_shares(),
            mean: mean(all.percent_ms, all.known_ms),
            memory: all.held_memory(),
            host_cpu: mean(all.cpu_thousandths_ms, all.cpu_known_ms),
            // Samples do not contain it: NVML needs 20 ms for each reading.
            bus_bytes: None,
        })
    }

    /// The tracked processes.
    pub fn processes(&self) -> impl Iterator<Item = ProcessKey> {
        self.processes.keys().copied()
    }

    /// Forgets all processes for which `is_kept` is false.
    pub fn retain_processes(&mut self, is_kept: impl Fn(&ProcessKey) -> bool) {
        self.processes.retain_entries(|process, _| is_kept(process));
    }

    /// Forgets processes that no sample contained for an hour, and of the processes
    /// missing from the newest sample all but the last ones: a process that released
    /// its device for a moment is not new, and many short-lived processes are not kept.
    pub fn drop_departed(&mut self, now: Timestamp) {
        let is_old = |past: &ProcessHistory| now.since(past.until) >= FORGET_AFTER;
        self.processes.retain_entries(|_, past| !is_old(past));
        let departed = self.processes.iter().filter(|(_, past)| past.until < now);
        let mut departed: Vec<(&ProcessKey, &ProcessHistory)> = departed.collect();
        departed.sort_indirect_by_key(|(key, past)| Reverse((past.until, **key)));
        let departed = departed.into_iter().map(|(key, past)| (&past.owner, *key));
        for key in interleave(departed).into_iter().skip(MAX_DEPARTED) {
            self.processes.remove(&key);
        }
    }
}

/// The use that each process made of all its devices.
fn moments<'a>(
    stretches: impl IntoIterator<Item = ProcessSample<'a>>,
) -> BTreeMap<ProcessKey, ProcessMoment<'a>> {
    let mut moments: BTreeMap<ProcessKey, ProcessMoment<'a>> = BTreeMap::new();
    for it in stretches {
        let (percent, memory) = (it.usage.utilization.mean(), it.usage.memory.mean());
        moments
            .entry(it.process)
            .and_modify(|moment| {
                moment.held_since = moment.held_since.min(it.held_since);
                moment.percent = moment.percent.max(percent);
                let both = moment.memory.zip(memory);
                moment.memory = both.map(|(one, other)| one.saturating_add(other));
            })
            .or_insert(ProcessMoment {
                owner: it.owner,
                held_since: it.held_since,
                percent,
                memory,
                host_cpu: it.host_cpu,
            });
    }
    moments
}

impl ProcessHistory {
    /// Adds a sample. The oldest part is dropped when the parts exceed their maximum.
    fn add(&mut self, longest: Option<Duration>, ms: u64, moment: ProcessMoment<'_>) {
        let has_room = |part: &&mut WindowPart| {
            longest.is_none_or(|longest| Duration::from_millis(part.seen_ms) < longest)
        };
        if let Some(part) = self.parts.last_mut().filter(has_room) {
            part.add(ms, moment);
            return;
        }
        if self.parts.len() >= WINDOW_PARTS {
            self.parts.remove(0);
        }
        let mut part = WindowPart::default();
        part.add(ms, moment);
        self.parts.push(part);
    }
}

impl WindowPart {
    fn add(&mut self, ms: u64, moment: ProcessMoment<'_>) {
        add_saturating(&mut self.seen_ms, ms);
        if let Some(percent) = moment.percent {
            add_saturating(&mut self.known_ms, ms);
            add_saturating(&mut self.percent_ms, percent.saturating_mul(ms));
            add_saturating(&mut self.saturated_ms, if percent >= 90 { ms } else { 0 });
            add_saturating(&mut self.idle_ms, if percent < 5 { ms } else { 0 });
        }
        if let Some(thousandths) = moment.host_cpu {
            add_saturating(&mut self.cpu_known_ms, ms);
            let product = u64::from(thousandths).saturating_mul(ms);
            add_saturating(&mut self.cpu_thousandths_ms, product);
        }
        if let Some(bytes) = moment.memory {
            add_saturating(&mut self.memory_known_ms, ms);
            self.memory = merge_ranges(self.memory, Some((bytes, bytes)));
            self.add_level(bytes, ms);
        }
    }

    fn add_level(&mut self, bytes: u64, ms: u64) {
        let is_near = |level: &&mut (u64, u64)| level.0.abs_diff(bytes) <= level_tolerance(level.0);
        if let Some((_, for_ms)) = self.levels.iter_mut().find(is_near) {
            add_saturating(for_ms, ms);
            return;
        }
        if self.levels.len() >= MAX_LEVELS {
            // The level with the shortest time is not the usual one.
            let levels = self.levels.iter().enumerate();
            let shortest = levels.min_by_key(|(_, (_, for_ms))| *for_ms);
            match shortest {
                Some((at, (_, for_ms))) if *for_ms <= ms => {
                    self.levels.swap_remove(at);
                }
                Some(_) | None => return,
            }
        }
        self.levels.push((bytes, ms));
    }

    fn merge(&mut self, later: &Self) {
        add_saturating(&mut self.seen_ms, later.seen_ms);
        add_saturating(&mut self.known_ms, later.known_ms);
        add_saturating(&mut self.percent_ms, later.percent_ms);
        add_saturating(&mut self.saturated_ms, later.saturated_ms);
        add_saturating(&mut self.idle_ms, later.idle_ms);
        add_saturating(&mut self.cpu_known_ms, later.cpu_known_ms);
        add_saturating(&mut self.cpu_thousandths_ms, later.cpu_thousandths_ms);
        add_saturating(&mut self.memory_known_ms, later.memory_known_ms);
        self.memory = merge_ranges(self.memory, later.memory);
        for (bytes, ms) in &later.levels {
            self.add_level(*bytes, *ms);
        }
    }

    /// `None` where the utilization is known for less than nine tenths of the time.
    fn utilization_shares(&self) -> Option<UtilizationShares> {
        let is_known = self.known_ms > 0 && self.known_ms >= self.seen_ms / 10 * 9;
        is_known.then(|| UtilizationShares {
            saturated: thousandths(self.saturated_ms, self.known_ms),
            idle: thousandths(self.idle_ms, self.known_ms),
        })
    }

    fn held_memory(&self) -> Option<HeldMemory> {
        let (min, max) = self.memory?;
        let longest = self.levels.iter().map(|(_, ms)| *ms).max()?;
        Some(HeldMemory {
            min,
            max,
            steady: thousandths(longest, self.memory_known_ms),
        })
    }
}

fn add_saturating(sum: &mut u64, by: u64) {
    *sum = sum.saturating_add(by);
}

/// The least and the most of both ranges.
fn merge_ranges(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((min, max)), Some((other_min, other_max))) => {
            Some((min.min(other_min), max.max(other_max)))
        }
        (one, other) => one.or(other),
    }
}

/// The tolerance around a memory level: a fiftieth, or 64 MiB.
fn level_tolerance(bytes: u64) -> u64 {
    (bytes / 50).max(64 << 20)
}

fn mean(total: u64, over: u64) -> Option<u32> {
    let mean = total.checked_div(over)?;
    Some(u32::try_from(mean).unwrap_or(u32::MAX))
}

fn thousandths(part: u64, of: u64) -> u16 {
    let share = part.saturating_mul(1_000).checked_div(of).unwrap_or(0);
    u16::try_from(share.min(1_000)).unwrap_or(1_000)
}

#[cfg(test)]
mod tests;
