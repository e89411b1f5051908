//! How processes used their devices of late, added up from samples: what
//! [`Load`] tells, of each. Live it is fed with each sample, for a scan of the past with
//! what the store kept of them.

use super::suspect::{Held, Load, Shares};
use crate::guard::bucket::Bucket;
use crate::turns::in_turns;
use crate::usage::RunUsage;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many processes are followed: as many of each owner, or all that they have.
pub const MOST: usize = 4_096;

/// So many processes that left their devices are kept, each with up to some KiB: likewise.
const MOST_DEPARTED: usize = 128;

/// So many parts the time that is looked back over has: when it is full the oldest goes.
const PARTS: usize = 6;

/// After so long somebody is forgotten.
const FORGET: Duration = Duration::from_secs(3_600);

/// So many amounts of memory are told apart in one part of that time.
const LEVELS: usize = 8;

/// One process on one device, in one sample.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    /// Which.
    pub process: ProcessKey,
    /// The user that it belongs to, or a name where they have no number; `None` where that
    /// is not known.
    pub owner: Option<(Option<u32>, &'a str)>,
    /// Since when it holds the device, as far as was seen.
    pub held_since: Timestamp,
    /// How it used it.
    pub usage: &'a RunUsage,
    /// The host CPUs it kept busy, in thousandths of one.
    pub host_cpu: Option<u32>,
}

/// All of them.
#[derive(Debug, Clone)]
pub struct Loads {
    /// As long as one part of the time is that is looked back over; `None`: all of it is
    /// looked back over.
    part: Option<Duration>,
    processes: BTreeMap<ProcessKey, Past>,
}

/// One process.
#[derive(Debug, Clone)]
struct Past {
    owner: Option<(Option<u32>, String)>,
    held_since: Timestamp,
    until: Timestamp,
    /// The oldest first.
    parts: Vec<Part>,
}

/// Sums over a part of the time.
#[derive(Debug, Clone, Default)]
struct Part {
    seen_ms: u64,
    /// For how long the utilisation was known, and what it was then.
    known_ms: u64,
    saturated_ms: u64,
    idle_ms: u64,
    percent_ms: u64,
    /// The same of host CPUs.
    cpu_known_ms: u64,
    cpu_thousandths_ms: u64,
    /// The least and the most memory.
    memory: Option<(u64, u64)>,
    memory_known_ms: u64,
    /// For how long it held about so many bytes; what there was no room for is in none.
    levels: Vec<(u64, u64)>,
}

/// What a process did with all its devices in one sample.
#[derive(Debug, Clone, Copy, Default)]
struct Moment<'a> {
    owner: Option<(Option<u32>, &'a str)>,
    held_since: Timestamp,
    /// Of the device that it used most.
    percent: Option<u64>,
    /// On all of them; `None` where it is not known of one.
    memory: Option<u64>,
    host_cpu: Option<u32>,
}

impl Loads {
    /// Looks back over this time, or a sixth less.
    #[must_use]
    pub fn over(window: Duration) -> Self {
        Self {
            part: Some(window / u32::try_from(PARTS).unwrap_or(1)),
            processes: BTreeMap::new(),
        }
    }

    /// Looks back over all that it is told.
    #[must_use]
    pub fn over_all() -> Self {
        Self {
            part: None,
            processes: BTreeMap::new(),
        }
    }

    /// Adds a sample: what was seen in so many milliseconds until then. A process that there
    /// is no room for is not followed.
    pub fn add<'a>(
        &mut self,
        until: Timestamp,
        seen_ms: u64,
        stretches: impl IntoIterator<Item = Stretch<'a>>,
    ) {
        let moments = moments(stretches);
        for (process, moment) in &moments {
            self.processes.entry(*process).or_insert_with(|| Past {
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

    /// Forgets those that there is no room for. Of each owner those stay that were followed
    /// before.
    fn make_room(&mut self) {
        if self.processes.len() <= MOST {
            return;
        }
        let all = self.processes.iter();
        let mut all: Vec<(&ProcessKey, &Past)> = all.collect();
        all.sort_indirect_by_key(|(_, past)| past.parts.is_empty());
        let all = all.into_iter().map(|(key, past)| (&past.owner, *key));
        let kept: BTreeSet<ProcessKey> = in_turns(all).into_iter().take(MOST).collect();
        self.keep_only(|process| kept.contains(process));
    }

    /// Adds what the store has of a sample, where nothing is known of host CPUs.
    pub fn add_stored(&mut self, bucket: &Bucket) {
        let stretches = bucket.runs.iter().map(|(run, judged)| Stretch {
            process: run.process(),
            owner: judged.about.owner.as_ref().map(|owner| {
                let name = owner.uid.map_or(owner.name.as_str(), |_| "");
                (owner.uid, name)
            }),
            held_since: judged.first_seen,
            usage: &judged.usage,
            host_cpu: None,
        });
        self.add(bucket.until, bucket.seen_ms, stretches);
    }

    /// How a process used its devices; `None` of one that is not followed.
    #[must_use]
    pub fn of(&self, process: ProcessKey) -> Option<Load> {
        let past = self.processes.get(&process)?;
        let mut all = Part::default();
        for part in &past.parts {
            all.merge(part);
        }
        Some(Load {
            held: past.until.since(past.held_since),
            seen: Duration::from_millis(all.seen_ms),
            utilization: all.shares(),
            mean: mean(all.percent_ms, all.known_ms),
            memory: all.held(),
            host_cpu: mean(all.cpu_thousandths_ms, all.cpu_known_ms),
            // No sample tells of it: NVML needs 20 ms for each answer.
            bus: None,
        })
    }

    /// Those that are followed.
    pub fn processes(&self) -> impl Iterator<Item = ProcessKey> {
        self.processes.keys().copied()
    }

    /// Forgets everybody but these.
    pub fn keep_only(&mut self, is_kept: impl Fn(&ProcessKey) -> bool) {
        self.processes.retain(|process, _| is_kept(process));
    }

    /// Forgets the processes that no sample had for an hour, and of those that the newest
    /// sample lacks all but the last: a process that let go of its device for a moment is
    /// not new, and many short ones are not kept.
    pub fn forget_old(&mut self, now: Timestamp) {
        let is_old = |past: &Past| now.since(past.until) >= FORGET;
        self.processes.retain(|_, past| !is_old(past));
        let departed = self.processes.iter().filter(|(_, past)| past.until < now);
        let mut departed: Vec<(&ProcessKey, &Past)> = departed.collect();
        departed.sort_unstable_by_key(|(key, past)| Reverse((past.until, **key)));
        let departed = departed.into_iter().map(|(key, past)| (&past.owner, *key));
        for key in in_turns(departed).into_iter().skip(MOST_DEPARTED) {
            self.processes.remove(&key);
        }
    }
}

/// What each of them did with all its devices.
fn moments<'a>(
    stretches: impl IntoIterator<Item = Stretch<'a>>,
) -> BTreeMap<ProcessKey, Moment<'a>> {
    let mut moments: BTreeMap<ProcessKey, Moment<'a>> = BTreeMap::new();
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
            .or_insert(Moment {
                owner: it.owner,
                held_since: it.held_since,
                percent,
                memory,
                host_cpu: it.host_cpu,
            });
    }
    moments
}

impl Past {
    /// Adds a sample; where that takes one part more than there may be, the oldest goes.
    fn add(&mut self, longest: Option<Duration>, ms: u64, moment: Moment<'_>) {
        let has_room = |part: &&mut Part| {
            longest.is_none_or(|longest| Duration::from_millis(part.seen_ms) < longest)
        };
        if let Some(part) = self.parts.last_mut().filter(has_room) {
            part.add(ms, moment);
            return;
        }
        if self.parts.len() >= PARTS {
            self.parts.remove(0);
        }
        let mut part = Part::default();
        part.add(ms, moment);
        self.parts.push(part);
    }
}

impl Part {
    fn add(&mut self, ms: u64, moment: Moment<'_>) {
        grow(&mut self.seen_ms, ms);
        if let Some(percent) = moment.percent {
            grow(&mut self.known_ms, ms);
            grow(&mut self.percent_ms, percent.saturating_mul(ms));
            grow(&mut self.saturated_ms, if percent >= 90 { ms } else { 0 });
            grow(&mut self.idle_ms, if percent < 5 { ms } else { 0 });
        }
        if let Some(thousandths) = moment.host_cpu {
            grow(&mut self.cpu_known_ms, ms);
            let product = u64::from(thousandths).saturating_mul(ms);
            grow(&mut self.cpu_thousandths_ms, product);
        }
        if let Some(bytes) = moment.memory {
            grow(&mut self.memory_known_ms, ms);
            self.memory = spanning(self.memory, Some((bytes, bytes)));
            self.at_level(bytes, ms);
        }
    }

    fn at_level(&mut self, bytes: u64, ms: u64) {
        let is_near = |level: &&mut (u64, u64)| level.0.abs_diff(bytes) <= slack(level.0);
        if let Some((_, for_ms)) = self.levels.iter_mut().find(is_near) {
            grow(for_ms, ms);
            return;
        }
        if self.levels.len() >= LEVELS {
            // Where it stayed shortest is not where it mostly is.
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
        grow(&mut self.seen_ms, later.seen_ms);
        grow(&mut self.known_ms, later.known_ms);
        grow(&mut self.percent_ms, later.percent_ms);
        grow(&mut self.saturated_ms, later.saturated_ms);
        grow(&mut self.idle_ms, later.idle_ms);
        grow(&mut self.cpu_known_ms, later.cpu_known_ms);
        grow(&mut self.cpu_thousandths_ms, later.cpu_thousandths_ms);
        grow(&mut self.memory_known_ms, later.memory_known_ms);
        self.memory = spanning(self.memory, later.memory);
        for (bytes, ms) in &later.levels {
            self.at_level(*bytes, *ms);
        }
    }

    /// `None` where the utilisation is not known of nine moments in ten.
    fn shares(&self) -> Option<Shares> {
        let is_known = self.known_ms > 0 && self.known_ms >= self.seen_ms / 10 * 9;
        is_known.then(|| Shares {
            saturated: thousandths(self.saturated_ms, self.known_ms),
            idle: thousandths(self.idle_ms, self.known_ms),
        })
    }

    fn held(&self) -> Option<Held> {
        let (least, most) = self.memory?;
        let longest = self.levels.iter().map(|(_, ms)| *ms).max()?;
        Some(Held {
            least,
            most,
            steady: thousandths(longest, self.memory_known_ms),
        })
    }
}

fn grow(sum: &mut u64, by: u64) {
    *sum = sum.saturating_add(by);
}

/// The least and the most of both.
fn spanning(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((least, most)), Some((other_least, other_most))) => {
            Some((least.min(other_least), most.max(other_most)))
        }
        (one, other) => one.or(other),
    }
}

/// How far from it what is about the same may be: a fiftieth, or 64 MiB.
fn slack(bytes: u64) -> u64 {
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
