//! A stretch of use as the store keeps it: one blob a sample, some bytes for each
//! device and process.
//!
//! The first byte is the version of the form. What follows is postcard: numbers
//! take as many bytes as they need. Names of devices and processes are numbers of
//! rows, each written as the distance from the one before; times and memory are
//! written as what they lack of the most they can be, which is mostly nothing.

use gpukill_policy::usage::{DeviceUsage, Gauge, RunUsage, Usage};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};

/// The only form so far.
const VERSION: u8 = 1;

/// The most devices or processes that are read of one blob.
const MOST: usize = 1 << 20;

/// The names are numbers of rows.
pub(super) type Stored = Usage<i64, i64>;

/// Read piece by piece, by [`Packed`].
#[derive(Serialize)]
struct Whole {
    /// From its beginning to its end by the wall clock.
    length_ms: u64,
    seen_ms: u64,
    devices: Vec<Device>,
    runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
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

#[derive(Serialize, Deserialize)]
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
#[derive(Serialize, Deserialize)]
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
#[derive(Serialize, Deserialize)]
enum Amount {
    One(u64),
    Mebi(u64),
}

/// A blob that is not one of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// As it is stored.
pub(super) fn pack(usage: &Stored) -> Vec<u8> {
    let mut device_before = 0;
    let mut run_before = 0;
    let whole = Whole {
        length_ms: usage.until.0.saturating_sub(usage.from.0).cast_unsigned(),
        seen_ms: usage.seen_ms,
        devices: usage
            .devices
            .iter()
            .map(|(id, device)| {
                let step = step(*id, &mut device_before);
                let ms = device.seen_ms();
                Device {
                    step,
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
            })
            .collect(),
        runs: usage
            .runs
            .iter()
            .map(|(id, run)| Run {
                step: step(*id, &mut run_before),
                unheld_ms: usage.seen_ms.saturating_sub(run.held_ms),
                busy_ms: run.busy_ms,
                idle_ms: run.idle_ms,
                unknown_ms: run.unknown_ms,
                memory: Value::of(&run.memory, run.held_ms),
                utilization: Value::of(&run.utilization, run.held_ms),
                connections: Value::of(&run.connections, run.held_ms),
            })
            .collect(),
    };
    // Nothing in it can fail to be written: it has no maps, and lengths are known.
    postcard::to_extend(&whole, vec![VERSION]).unwrap_or_else(|_| vec![VERSION])
}

/// What was stored, of a stretch that began then.
pub(super) fn unpack(blob: &[u8], from: Timestamp) -> Result<Stored, Broken> {
    let packed = Packed::open(blob, from)?;
    let (until, seen_ms) = (packed.until, packed.seen_ms);
    let (devices, runs) = packed.devices()?;
    let runs = runs.map(|run| run.and_then(|run| Ok((run.id, run.usage()?))));
    Ok(Stored {
        from,
        until,
        seen_ms,
        devices: devices.into_iter().collect(),
        runs: runs.collect::<Result<_, Broken>>()?,
    })
}

/// When a stretch that began then ended, and how much of it was seen, without the
/// rest of the blob.
pub(super) fn span(blob: &[u8], from: Timestamp) -> Result<(Timestamp, u64), Broken> {
    let packed = Packed::open(blob, from)?;
    Ok((packed.until, packed.seen_ms))
}

/// A blob that is read piece by piece, and no further than is asked for.
pub(super) struct Packed<'a> {
    pub(super) until: Timestamp,
    pub(super) seen_ms: u64,
    rest: &'a [u8],
}

/// The runs of a blob, in the order of their ids.
pub(super) struct Runs<'a> {
    seen_ms: u64,
    rest: &'a [u8],
    left: usize,
    before: i64,
}

/// One of them, of which only the id is worked out.
pub(super) struct PackedRun {
    pub(super) id: i64,
    seen_ms: u64,
    run: Run,
}

impl<'a> Packed<'a> {
    /// Opens the blob of a stretch that began then.
    pub(super) fn open(blob: &'a [u8], from: Timestamp) -> Result<Self, Broken> {
        let Some((&VERSION, mut rest)) = blob.split_first() else {
            return Err(Broken);
        };
        // As [`Whole`] begins.
        let (length_ms, seen_ms): (u64, u64) = take(&mut rest)?;
        let length = i64::try_from(length_ms).map_err(|_| Broken)?;
        Ok(Self {
            until: Timestamp(from.0.checked_add(length).ok_or(Broken)?),
            seen_ms,
            rest,
        })
    }

    /// The devices, in the order of their ids, and then the runs.
    pub(super) fn devices(mut self) -> Result<(Vec<(i64, DeviceUsage)>, Runs<'a>), Broken> {
        let (mut devices, mut before) = (Vec::new(), 0);
        for _ in 0..many(&mut self.rest)? {
            let device: Device = take(&mut self.rest)?;
            before = next(before, device.step)?;
            devices.push((before, device.usage(self.seen_ms)?));
        }
        let left = many(&mut self.rest)?;
        let runs = Runs {
            seen_ms: self.seen_ms,
            rest: self.rest,
            left,
            before: 0,
        };
        Ok((devices, runs))
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<PackedRun, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = take(&mut self.rest).and_then(|run: Run| {
            self.before = next(self.before, run.step)?;
            Ok(PackedRun {
                id: self.before,
                seen_ms: self.seen_ms,
                run,
            })
        });
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}

impl PackedRun {
    pub(super) fn usage(self) -> Result<RunUsage, Broken> {
        let Self { seen_ms, run, .. } = self;
        let ms = seen_ms.checked_sub(run.unheld_ms).ok_or(Broken)?;
        Ok(RunUsage {
            held_ms: ms,
            busy_ms: run.busy_ms,
            idle_ms: run.idle_ms,
            unknown_ms: run.unknown_ms,
            memory: run.memory.gauge(ms)?,
            utilization: run.utilization.gauge(ms)?,
            connections: run.connections.gauge(ms)?,
        })
    }
}

impl Device {
    fn usage(self, seen_ms: u64) -> Result<DeviceUsage, Broken> {
        let ms = seen_ms.checked_sub(self.unseen_ms).ok_or(Broken)?;
        let other = self.held_ms.checked_add(self.free_ms);
        let other = other.and_then(|ms| ms.checked_add(self.unknown_ms));
        let other = other.ok_or(Broken)?;
        Ok(DeviceUsage {
            index: self.index,
            busy_ms: ms.checked_sub(other).ok_or(Broken)?,
            held_ms: self.held_ms,
            free_ms: self.free_ms,
            unknown_ms: self.unknown_ms,
            memory: self.memory.gauge(ms)?,
            utilization: self.utilization.gauge(ms)?,
            power: self.power.gauge(ms)?,
            hottest: self.hottest,
        })
    }
}

fn take<'a, T: Deserialize<'a>>(rest: &mut &'a [u8]) -> Result<T, Broken> {
    let (read, after) = postcard::take_from_bytes(rest).map_err(|_| Broken)?;
    *rest = after;
    Ok(read)
}

/// How many devices or runs follow.
fn many(rest: &mut &[u8]) -> Result<usize, Broken> {
    let many: usize = take(rest)?;
    if many > MOST { Err(Broken) } else { Ok(many) }
}

/// How far an id is from the one before. Rows are numbered from 1.
fn step(id: i64, before: &mut i64) -> u64 {
    let step = id.saturating_sub(*before);
    *before = id;
    step.cast_unsigned()
}

fn next(before: i64, step: u64) -> Result<i64, Broken> {
    let step = i64::try_from(step).map_err(|_| Broken)?;
    before
        .checked_add(step)
        .filter(|id| *id > before)
        .ok_or(Broken)
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

    fn gauge(self, ms: u64) -> Result<Gauge, Broken> {
        let (most, lacking, known_ms, is_failed) = match self {
            Self::Unsupported => return Ok(Gauge::default()),
            Self::Failed => {
                return Ok(Gauge {
                    is_failed: true,
                    ..Gauge::default()
                });
            }
            Self::Known { most, lacking } => (most, lacking, ms, false),
            Self::Partly {
                most,
                lacking,
                known_ms,
                is_failed,
            } => (most, lacking, known_ms, is_failed),
        };
        let most = most.number()?;
        let all = u128::from(most) * u128::from(known_ms);
        Ok(Gauge {
            most: Some(most),
            known_ms,
            total: all.checked_sub(lacking).ok_or(Broken)?,
            is_failed,
        })
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

    fn number(self) -> Result<u64, Broken> {
        match self {
            Self::One(number) => Ok(number),
            Self::Mebi(number) => number.checked_mul(1 << 20).ok_or(Broken),
        }
    }
}
