//! Reads a blob piece by piece, and no further than is asked for.

use super::rest::{Rest, Value};
use super::{Stored, VERSION};
use gpukill_policy::usage::{CpuUse, DeviceUsage, RunUsage};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// A blob that is not one of ours.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Broken;

/// What was stored, of a stretch that began then.
pub(in super::super) fn unpack(blob: &[u8], from: Timestamp) -> Result<Stored, Broken> {
    let read = read(blob, from)?;
    Ok(Stored {
        from,
        until: read.until,
        seen_ms: read.seen_ms,
        devices: read.devices.into_iter().collect(),
        runs: read.runs.into_iter().collect(),
    })
}

/// The same, in the order of the ids.
pub(in super::super) struct Unpacked {
    pub(in super::super) from: Timestamp,
    pub(in super::super) until: Timestamp,
    pub(in super::super) seen_ms: u64,
    pub(in super::super) devices: Vec<(i64, DeviceUsage)>,
    pub(in super::super) runs: Vec<(i64, RunUsage)>,
    /// Those of its runs that had left at the end of a sample; none of a minute or an hour.
    pub(in super::super) left: BTreeSet<i64>,
}

/// What was stored, of a stretch that began then, to go through once.
pub(in super::super) fn read(blob: &[u8], from: Timestamp) -> Result<Unpacked, Broken> {
    let packed = Packed::open(blob, from)?;
    let (until, seen_ms) = (packed.until, packed.seen_ms);
    let (devices, mut packed) = packed.devices()?;
    let mut runs = Vec::with_capacity(packed.left.min(1 << 10));
    for run in packed.by_ref() {
        let run = run?;
        runs.push((run.id, run.usage()?));
    }
    let left = packed.rest.ids()?;
    if packed.rest.flag()? {
        let codes = packed.rest.half_bytes(runs.len())?;
        for ((_, run), code) in runs.iter_mut().zip(codes) {
            run.cpu = CpuUse::from_code(code).ok_or(Broken)?;
        }
    }
    Ok(Unpacked {
        from,
        until,
        seen_ms,
        devices,
        runs,
        left,
    })
}

/// When a stretch that began then ended, and how much of it was seen, without the
/// rest of the blob.
pub(in super::super) fn span(blob: &[u8], from: Timestamp) -> Result<(Timestamp, u64), Broken> {
    let packed = Packed::open(blob, from)?;
    Ok((packed.until, packed.seen_ms))
}

/// A blob that is open.
pub(in super::super) struct Packed<'a> {
    pub(in super::super) until: Timestamp,
    pub(in super::super) seen_ms: u64,
    rest: Rest<'a>,
}

/// The runs of a blob, in the order of their ids.
pub(in super::super) struct Runs<'a> {
    seen_ms: u64,
    rest: Rest<'a>,
    left: usize,
    before: i64,
}

/// One of them, of which only the id is worked out.
pub(in super::super) struct PackedRun {
    pub(in super::super) id: i64,
    seen_ms: u64,
    unheld_ms: u64,
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    memory: Value,
    utilization: Value,
    connections: Value,
}

impl<'a> Packed<'a> {
    /// Opens the blob of a stretch that began then.
    pub(in super::super) fn open(blob: &'a [u8], from: Timestamp) -> Result<Self, Broken> {
        let (version, rest) = blob.split_first().ok_or(Broken)?;
        if *version != VERSION {
            return Err(Broken);
        }
        let mut rest = Rest(rest);
        let length = i64::try_from(rest.number()?).map_err(|_| Broken)?;
        let seen_ms = rest.number()?;
        Ok(Self {
            until: Timestamp(from.0.checked_add(length).ok_or(Broken)?),
            seen_ms,
            rest,
        })
    }

    /// The devices, in the order of their ids, and then the runs.
    pub(in super::super) fn devices(
        mut self,
    ) -> Result<(Vec<(i64, DeviceUsage)>, Runs<'a>), Broken> {
        let (mut devices, mut before) = (Vec::new(), 0);
        for _ in 0..self.rest.many()? {
            before = next(before, self.rest.number()?)?;
            devices.push((before, self.rest.device(self.seen_ms)?));
        }
        Ok((devices, self.runs()?))
    }

    /// Of each device no more than its index, and then the runs.
    pub(in super::super) fn indices(mut self) -> Result<(Vec<(i64, u32)>, Runs<'a>), Broken> {
        let (mut indices, mut before) = (Vec::new(), 0);
        for _ in 0..self.rest.many()? {
            before = next(before, self.rest.number()?)?;
            indices.push((before, self.rest.index_of_device()?));
        }
        Ok((indices, self.runs()?))
    }

    fn runs(mut self) -> Result<Runs<'a>, Broken> {
        let left = usize::try_from(self.rest.many()?).map_err(|_| Broken)?;
        Ok(Runs {
            seen_ms: self.seen_ms,
            rest: self.rest,
            left,
            before: 0,
        })
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<PackedRun, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = self.run();
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}

impl Runs<'_> {
    /// The id of the next run, of which [`Runs::usage`] or [`Runs::skip_usage`] reads the
    /// rest; `None` after the last.
    pub(in super::super) fn id(&mut self) -> Result<Option<i64>, Broken> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        self.before = next(self.before, self.rest.number()?)?;
        Ok(Some(self.before))
    }

    /// How that run used its device.
    pub(in super::super) fn usage(&mut self) -> Result<RunUsage, Broken> {
        self.rest_of_run()?.usage()
    }

    /// Goes on behind it. What is not asked for is not worked out.
    pub(in super::super) fn skip_usage(&mut self) -> Result<(), Broken> {
        for _ in 0..4 {
            self.rest.skip_number()?;
        }
        for _ in 0..3 {
            self.rest.skip_value()?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<PackedRun, Broken> {
        self.before = next(self.before, self.rest.number()?)?;
        self.rest_of_run()
    }

    fn rest_of_run(&mut self) -> Result<PackedRun, Broken> {
        Ok(PackedRun {
            id: self.before,
            seen_ms: self.seen_ms,
            unheld_ms: self.rest.number()?,
            busy_ms: self.rest.number()?,
            idle_ms: self.rest.number()?,
            unknown_ms: self.rest.number()?,
            memory: self.rest.value()?,
            utilization: self.rest.value()?,
            connections: self.rest.value()?,
        })
    }
}

impl PackedRun {
    pub(in super::super) fn usage(self) -> Result<RunUsage, Broken> {
        let ms = self.seen_ms.checked_sub(self.unheld_ms).ok_or(Broken)?;
        Ok(RunUsage {
            held_ms: ms,
            busy_ms: self.busy_ms,
            idle_ms: self.idle_ms,
            unknown_ms: self.unknown_ms,
            memory: self.memory.gauge(ms)?,
            utilization: self.utilization.gauge(ms)?,
            connections: self.connections.gauge(ms)?,
            // Of all runs it stands at the end.
            cpu: CpuUse::default(),
        })
    }
}

impl Rest<'_> {
    /// Ids, each written as the distance from the one before.
    fn ids(&mut self) -> Result<BTreeSet<i64>, Broken> {
        let (mut ids, mut before) = (BTreeSet::new(), 0);
        for _ in 0..self.many()? {
            before = next(before, self.number()?)?;
            ids.insert(before);
        }
        Ok(ids)
    }
}

/// The id that is so far from the one before.
fn next(before: i64, step: u64) -> Result<i64, Broken> {
    let step = i64::try_from(step).map_err(|_| Broken)?;
    before
        .checked_add(step)
        .filter(|id| *id > before)
        .ok_or(Broken)
}

#[cfg(test)]
mod tests {
    use super::super::{pack, pack_sample};
    use super::*;
    use gpukill_policy::usage::Gauge;
    use proptest::prelude::*;

    fn gauge(ms: u64) -> impl Strategy<Value = Gauge> {
        let most = prop_oneof![
            any::<u32>().prop_map(u64::from),
            (0..1_u64 << 43).prop_map(|it| it << 20)
        ];
        let part = prop_oneof![Just(0), Just(ms), 0..=ms];
        let known = (most, part, 0..=1_000_u64, any::<bool>());
        let known = known.prop_map(|(most, known_ms, share, is_failed)| Gauge {
            most: Some(most),
            known_ms,
            total: u128::from(most) * u128::from(known_ms) * u128::from(share) / 1_000,
            is_failed,
        });
        let unknown = any::<bool>().prop_map(|is_failed| Gauge {
            is_failed,
            ..Gauge::default()
        });
        prop_oneof![known, unknown]
    }

    fn usage() -> impl Strategy<Value = Stored> {
        (any::<i32>(), 0..1_u64 << 40, 0..1_u64 << 40).prop_flat_map(|(from, length, ms)| {
            let device = (
                any::<u32>(),
                [0..=ms / 4, 0..=ms / 4, 0..=ms / 4, 0..=ms / 4],
            );
            let gauges = |ms| [gauge(ms), gauge(ms), gauge(ms)];
            let device = (device, prop::option::of(any::<i32>())).prop_flat_map(
                move |((index, [busy_ms, held_ms, free_ms, unknown_ms]), hottest)| {
                    gauges(busy_ms + held_ms + free_ms + unknown_ms).prop_map(
                        move |[memory, utilization, power]| DeviceUsage {
                            index,
                            busy_ms,
                            held_ms,
                            free_ms,
                            unknown_ms,
                            memory,
                            utilization,
                            power,
                            hottest,
                        },
                    )
                },
            );
            let run = (
                0..=ms,
                prop::array::uniform3(prop_oneof![0..300_u64, any::<u64>()]),
            )
                .prop_flat_map(move |(held_ms, [busy_ms, idle_ms, unknown_ms])| {
                    let cpu = prop_oneof![3 => Just(0), 1 => 0..=8_u8];
                    (gauges(held_ms), cpu).prop_map(
                        move |([memory, utilization, connections], cpu)| RunUsage {
                            held_ms,
                            busy_ms,
                            idle_ms,
                            unknown_ms,
                            memory,
                            utilization,
                            connections,
                            cpu: CpuUse::from_code(cpu).unwrap(),
                        },
                    )
                });
            let id = || prop_oneof![1..300_i64, 1..i64::MAX];
            let devices = prop::collection::btree_map(id(), device, 0..4);
            let runs = prop::collection::btree_map(id(), run, 0..6);
            (devices, runs).prop_map(move |(devices, runs)| Stored {
                from: Timestamp(from.into()),
                until: Timestamp(i64::from(from) + length.cast_signed()),
                seen_ms: ms,
                devices,
                runs,
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_left_out_does_not_change_what_is_read(usage in usage(), odd in any::<bool>()) {
            let blob = pack(&usage);
            let (_, mut runs) = Packed::open(&blob, usage.from).unwrap().devices().unwrap();
            let (mut read, mut is_wanted) = (Vec::new(), odd);
            while let Some(id) = runs.id().unwrap() {
                if is_wanted {
                    read.push((id, runs.usage().unwrap()));
                } else {
                    runs.skip_usage().unwrap();
                }
                is_wanted = !is_wanted;
            }
            let first = usage.runs.keys().next().copied();
            let every_other = usage.runs.clone().into_iter().skip(usize::from(!odd)).step_by(2);
            let without_cpu = every_other.map(|(id, run)| {
                let cpu = CpuUse::default();
                (id, RunUsage { cpu, ..run })
            });
            prop_assert_eq!(read, without_cpu.collect::<Vec<_>>());
            // Only the end remains: which runs had left, and their processor time.
            let has_cpu = usage.runs.values().any(|run| run.cpu != CpuUse::default());
            let end = if has_cpu { usage.runs.len().div_ceil(2) } else { 0 };
            prop_assert_eq!(runs.rest.0.len(), 2 + end);
            let (indices, mut runs) = Packed::open(&blob, usage.from).unwrap().indices().unwrap();
            let all = usage.devices.iter().map(|(id, device)| (*id, device.index));
            prop_assert_eq!(indices, all.collect::<Vec<_>>());
            prop_assert_eq!(runs.id().unwrap(), first);
        }

        #[test]
        fn what_is_written_is_read(usage in usage()) {
            let blob = pack(&usage);
            prop_assert_eq!(unpack(&blob, usage.from), Ok(usage.clone()));
            let mut other = blob.clone();
            other[0] = VERSION + 1;
            prop_assert_eq!(unpack(&other, usage.from), Err(Broken));
            // What ends too early is broken.
            for end in 0..blob.len() {
                prop_assert_eq!(unpack(&blob[..end], usage.from), Err(Broken));
            }
        }

        #[test]
        fn who_had_left_is_read_with_what_was_used(
            usage in usage(),
            left in prop::collection::btree_set(1..i64::MAX, 0..4),
        ) {
            let blob = pack_sample(&usage, &left);
            let told = read(&blob, usage.from).map(|it| it.left);
            prop_assert_eq!(told, Ok(left));
            prop_assert_eq!(unpack(&blob, usage.from), Ok(usage.clone()));
            for end in 0..blob.len() {
                prop_assert_eq!(unpack(&blob[..end], usage.from), Err(Broken));
            }
        }

        #[test]
        fn bytes_of_others_are_answered(mut blob in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack(&blob, Timestamp(0));
            blob.insert(0, VERSION);
            let _ = unpack(&blob, Timestamp(0));
        }
    }
}
