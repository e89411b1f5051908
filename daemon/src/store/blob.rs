//! The usage of a sample, minute or hour as the store keeps it: one blob with some bytes for each
//! device and process.
//!
//! The first byte is the format version; the rest is postcard, in which numbers take as many bytes
//! as they need. Devices and runs are row ids, each written as the distance from the previous one.
//! Times and memory are written as the difference from their maximum, which is mostly zero. After
//! the runs come the runs that had left their devices at the end, and the processor time of each
//! run, where known of any. Decoding is written by hand, in `decode`, because it takes most of the
//! time of most queries.

mod cursor;
mod decode;

pub(super) use decode::{
    BlobError, BlobReader, BlobRuns, DecodedUsage, decode, decode_in_order, decode_span,
};

use gpukill_policy::usage::{Gauge, RunUsage, Usage};
use serde::Serialize;
use std::collections::BTreeSet;

/// The format version of the blob.
const VERSION: u8 = 1;

/// Usage by row ids of devices and runs.
pub(super) type StoredUsage = Usage<i64, i64>;

/// The beginning of a blob; the number of runs and the runs follow.
#[derive(Serialize)]
struct BlobHead {
    /// The wall-clock time from beginning to end.
    length_ms: u64,
    seen_ms: u64,
    devices: Vec<EncodedDevice>,
}

#[derive(Serialize)]
struct EncodedDevice {
    step: u64,
    index: u32,
    unobserved_ms: u64,
    held_ms: u64,
    free_ms: u64,
    unknown_ms: u64,
    memory: EncodedGauge,
    utilization: EncodedGauge,
    power: EncodedGauge,
    hottest: Option<i32>,
}

#[derive(Serialize)]
struct EncodedRun {
    step: u64,
    unheld_ms: u64,
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    memory: EncodedGauge,
    utilization: EncodedGauge,
    connections: EncodedGauge,
}

/// A gauge of a device or run that was present for some time.
#[derive(Serialize)]
enum EncodedGauge {
    Unsupported,
    Failed,
    Known {
        max: EncodedAmount,
        /// How far the sum is below `max` at all times.
        deficit: u128,
    },
    /// Not known all the time; `is_failed` says whether readings failed or were unsupported.
    Partial {
        max: EncodedAmount,
        deficit: u128,
        known_ms: u64,
        is_failed: bool,
    },
}

/// A number; memory is mostly in whole MiB.
#[derive(Serialize)]
enum EncodedAmount {
    Bytes(u64),
    Mebibytes(u64),
}

/// Encodes a sample; these runs had left at its end.
pub(super) fn encode_sample(usage: &StoredUsage, left: &BTreeSet<i64>) -> Vec<u8> {
    encode_runs(usage).finish(usage, left)
}

/// Encodes a usage without runs that had left.
#[cfg(test)]
pub(super) fn encode(usage: &StoredUsage) -> Vec<u8> {
    encode_sample(usage, &BTreeSet::new())
}

fn encode_runs(usage: &StoredUsage) -> RunEncoder {
    let mut runs = RunEncoder::new(usage.seen_ms);
    for (id, run) in &usage.runs {
        runs.add(*id, run);
    }
    runs
}

/// Encodes the runs of a usage, one after another.
pub(super) struct RunEncoder {
    seen_ms: u64,
    count: u64,
    last_id: i64,
    bytes: Vec<u8>,
    /// The processor time code of each run.
    cpu_codes: Vec<u8>,
}

impl RunEncoder {
    /// An encoder without runs, for a usage with this covered time.
    pub(super) const fn new(seen_ms: u64) -> Self {
        Self {
            seen_ms,
            count: 0,
            last_id: 0,
            bytes: Vec::new(),
            cpu_codes: Vec::new(),
        }
    }

    /// Adds a run. Runs must come in the order of their ids.
    pub(super) fn add(&mut self, id: i64, run: &RunUsage) {
        self.cpu_codes.push(run.cpu.code());
        let run = EncodedRun {
            step: id_step(id, &mut self.last_id),
            unheld_ms: self.seen_ms.saturating_sub(run.held_ms),
            busy_ms: run.busy_ms,
            idle_ms: run.idle_ms,
            unknown_ms: run.unknown_ms,
            memory: EncodedGauge::from_gauge(&run.memory, run.held_ms),
            utilization: EncodedGauge::from_gauge(&run.utilization, run.held_ms),
            connections: EncodedGauge::from_gauge(&run.connections, run.held_ms),
        };
        self.count += 1;
        append_postcard(&run, &mut self.bytes);
    }

    /// The blob with the times and devices of `usage`; `left` are the runs that had left at its
    /// end.
    pub(super) fn finish(self, usage: &StoredUsage, left: &BTreeSet<i64>) -> Vec<u8> {
        let mut before = 0;
        let devices = usage.devices.iter().map(|(id, device)| {
            let ms = device.covered_ms();
            EncodedDevice {
                step: id_step(*id, &mut before),
                index: device.index,
                unobserved_ms: usage.seen_ms.saturating_sub(ms),
                held_ms: device.held_ms,
                free_ms: device.free_ms,
                unknown_ms: device.unknown_ms,
                memory: EncodedGauge::from_gauge(&device.memory, ms),
                utilization: EncodedGauge::from_gauge(&device.utilization, ms),
                power: EncodedGauge::from_gauge(&device.power, ms),
                hottest: device.hottest,
            }
        });
        let head = BlobHead {
            length_ms: usage.until.0.saturating_sub(usage.from.0).cast_unsigned(),
            seen_ms: usage.seen_ms,
            devices: devices.collect(),
        };
        let mut before = 0;
        let left: Vec<u64> = left.iter().map(|id| id_step(*id, &mut before)).collect();
        let mut blob = vec![VERSION];
        append_postcard(&head, &mut blob);
        append_postcard(&self.count, &mut blob);
        blob.extend(self.bytes);
        append_postcard(&left, &mut blob);
        let has_processor_time = self.cpu_codes.iter().any(|code| *code != 0);
        append_postcard(&has_processor_time, &mut blob);
        if has_processor_time {
            // Half a byte for each run, the first of two in the lower half.
            let pairs = self.cpu_codes.chunks(2);
            blob.extend(pairs.map(|pair| pair[0] | pair.get(1).map_or(0, |second| second << 4)));
        }
        blob
    }
}

/// Serialization cannot fail: the value has no maps, and all lengths are known.
fn append_postcard(value: &impl Serialize, blob: &mut Vec<u8>) {
    let encoded = postcard::to_extend(value, std::mem::take(blob));
    *blob = encoded.unwrap_or_default();
}

/// The distance of an id from the previous one. Row ids start at 1.
fn id_step(id: i64, before: &mut i64) -> u64 {
    let step = id.saturating_sub(*before);
    *before = id;
    step.cast_unsigned()
}

impl EncodedGauge {
    /// Encodes the gauge of something that was present for `ms`.
    fn from_gauge(gauge: &Gauge, ms: u64) -> Self {
        let Some(max) = gauge.max else {
            return if gauge.is_failed {
                Self::Failed
            } else {
                Self::Unsupported
            };
        };
        let all = u128::from(max).saturating_mul(u128::from(gauge.known_ms));
        let deficit = all.saturating_sub(gauge.total);
        let max = EncodedAmount::from_number(max);
        if gauge.known_ms == ms && !gauge.is_failed {
            return Self::Known { max, deficit };
        }
        Self::Partial {
            max,
            deficit,
            known_ms: gauge.known_ms,
            is_failed: gauge.is_failed,
        }
    }
}

impl EncodedAmount {
    const fn from_number(number: u64) -> Self {
        if number > 0 && number.is_multiple_of(1 << 20) {
            Self::Mebibytes(number >> 20)
        } else {
            Self::Bytes(number)
        }
    }
}
