//! A stretch of use as the store keeps it: one blob a sample, some bytes for each
//! device and process.
//!
//! The first byte is the version of the form. What follows is postcard: numbers
//! take as many bytes as they need. Names of devices and processes are numbers of
//! rows, each written as the distance from the one before; times and memory are
//! written as what they lack of the most they can be, which is mostly nothing. After the
//! runs stand the runs that had left their devices at the end, and how much processor time
//! each run took, where that is known of any. The blob is read by hand, in `read`: for
//! most questions that takes most of the time.

mod read;

mod rest;

pub(super) use read::{Broken, Packed, Runs, Unpacked, read, span, unpack};

use gpukill_policy::usage::{Gauge, RunUsage, Usage};
use serde::Serialize;
use std::collections::BTreeSet;

/// The version of the form.
const VERSION: u8 = 1;

/// The names are numbers of rows.
pub(super) type Stored = Usage<i64, i64>;

/// What a blob begins with, before how many runs there are, and these.
#[derive(Serialize)]
struct Head {
    /// From its beginning to its end by the wall clock.
    length_ms: u64,
    seen_ms: u64,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    step: u64,
    index: u32,
    unseen_ms: u64,
    held_ms: u64,
    free_ms: u64,
    unknown_ms: u64,
    memory: Value,
    utilization: Value,
    power: Value,
    hottest: Option<i32>,
}

#[derive(Serialize)]
struct Run {
    step: u64,
    unheld_ms: u64,
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    memory: Value,
    utilization: Value,
    connections: Value,
}

/// A gauge of something that was there for some time.
#[derive(Serialize)]
enum Value {
    Unsupported,
    Failed,
    Known {
        most: Amount,
        /// What the sum lacks of that many at all times.
        lacking: u128,
    },
    /// Not all the time, and why not: whether it failed.
    Partly {
        most: Amount,
        lacking: u128,
        known_ms: u64,
        is_failed: bool,
    },
}

/// A number; memory mostly comes in whole MiB.
#[derive(Serialize)]
enum Amount {
    One(u64),
    Mebi(u64),
}

/// As a sample is stored, at whose end these runs had left.
pub(super) fn pack_sample(usage: &Stored, left: &BTreeSet<i64>) -> Vec<u8> {
    packed(usage).whole(usage, left)
}

/// As a stretch is stored.
#[cfg(test)]
pub(super) fn pack(usage: &Stored) -> Vec<u8> {
    pack_sample(usage, &BTreeSet::new())
}

fn packed(usage: &Stored) -> PackedRuns {
    let mut runs = PackedRuns::of(usage.seen_ms);
    for (id, run) in &usage.runs {
        runs.add(*id, run);
    }
    runs
}

/// The runs of a stretch, packed one after the other.
pub(super) struct PackedRuns {
    seen_ms: u64,
    count: u64,
    before: i64,
    bytes: Vec<u8>,
    /// How much processor time each took.
    codes: Vec<u8>,
}

impl PackedRuns {
    /// None yet, of a stretch of which so much was seen.
    pub(super) const fn of(seen_ms: u64) -> Self {
        Self {
            seen_ms,
            count: 0,
            before: 0,
            bytes: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// Adds a run. They come in the order of their ids.
    pub(super) fn add(&mut self, id: i64, run: &RunUsage) {
        self.codes.push(run.cpu.code());
        let run = Run {
            step: step(id, &mut self.before),
            unheld_ms: self.seen_ms.saturating_sub(run.held_ms),
            busy_ms: run.busy_ms,
            idle_ms: run.idle_ms,
            unknown_ms: run.unknown_ms,
            memory: Value::of(&run.memory, run.held_ms),
            utilization: Value::of(&run.utilization, run.held_ms),
            connections: Value::of(&run.connections, run.held_ms),
        };
        self.count += 1;
        append(&run, &mut self.bytes);
    }

    /// The blob of the stretch, whose times and devices are these; `left` are the runs that
    /// had left at its end.
    pub(super) fn whole(self, usage: &Stored, left: &BTreeSet<i64>) -> Vec<u8> {
        let mut before = 0;
        let devices = usage.devices.iter().map(|(id, device)| {
            let ms = device.seen_ms();
            Device {
                step: step(*id, &mut before),
                index: device.index,
                unseen_ms: usage.seen_ms.saturating_sub(ms),
                held_ms: device.held_ms,
                free_ms: device.free_ms,
                unknown_ms: device.unknown_ms,
                memory: Value::of(&device.memory, ms),
                utilization: Value::of(&device.utilization, ms),
                power: Value::of(&device.power, ms),
                hottest: device.hottest,
            }
        });
        let head = Head {
            length_ms: usage.until.0.saturating_sub(usage.from.0).cast_unsigned(),
            seen_ms: usage.seen_ms,
            devices: devices.collect(),
        };
        let mut before = 0;
        let left: Vec<u64> = left.iter().map(|id| step(*id, &mut before)).collect();
        let mut blob = vec![VERSION];
        append(&head, &mut blob);
        append(&self.count, &mut blob);
        blob.extend(self.bytes);
        append(&left, &mut blob);
        let has_processor_time = self.codes.iter().any(|code| *code != 0);
        append(&has_processor_time, &mut blob);
        if has_processor_time {
            // Half a byte of each run, the first of two in the lower half.
            let pairs = self.codes.chunks(2);
            blob.extend(pairs.map(|pair| pair[0] | pair.get(1).map_or(0, |second| second << 4)));
        }
        blob
    }
}

/// Nothing in it can fail to be written: it has no maps, and lengths are known.
fn append(value: &impl Serialize, blob: &mut Vec<u8>) {
    let whole = postcard::to_extend(value, std::mem::take(blob));
    *blob = whole.unwrap_or_default();
}

/// How far an id is from the one before. Rows are numbered from 1.
fn step(id: i64, before: &mut i64) -> u64 {
    let step = id.saturating_sub(*before);
    *before = id;
    step.cast_unsigned()
}

impl Value {
    /// Of something that was there for so long.
    fn of(gauge: &Gauge, ms: u64) -> Self {
        let Some(most) = gauge.most else {
            return if gauge.is_failed {
                Self::Failed
            } else {
                Self::Unsupported
            };
        };
        let all = u128::from(most).saturating_mul(u128::from(gauge.known_ms));
        let lacking = all.saturating_sub(gauge.total);
        let most = Amount::of(most);
        if gauge.known_ms == ms && !gauge.is_failed {
            return Self::Known { most, lacking };
        }
        Self::Partly {
            most,
            lacking,
            known_ms: gauge.known_ms,
            is_failed: gauge.is_failed,
        }
    }
}

impl Amount {
    const fn of(number: u64) -> Self {
        if number > 0 && number.is_multiple_of(1 << 20) {
            Self::Mebi(number >> 20)
        } else {
            Self::One(number)
        }
    }
}
