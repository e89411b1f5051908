//! Decodes a blob piece by piece, no further than needed.

use super::cursor::{BlobCursor, DecodedGauge};
use super::{StoredUsage, VERSION};
use gpukill_policy::usage::{CpuUse, DeviceUsage, RunUsage};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// The error for a blob that is not in our format.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct BlobError;

/// Decodes the blob of a usage that began at `from`.
pub(in super::super) fn decode(blob: &[u8], from: Timestamp) -> Result<StoredUsage, BlobError> {
    let read = decode_in_order(blob, from)?;
    Ok(StoredUsage {
        from,
        until: read.until,
        seen_ms: read.seen_ms,
        devices: read.devices.into_iter().into_map(),
        runs: read.runs.into_iter().into_map(),
    })
}

/// Decoded usage in the order of the ids.
pub(in super::super) struct DecodedUsage {
    pub(in super::super) from: Timestamp,
    pub(in super::super) until: Timestamp,
    pub(in super::super) seen_ms: u64,
    pub(in super::super) devices: Vec<(i64, DeviceUsage)>,
    pub(in super::super) runs: Vec<(i64, RunUsage)>,
    /// The runs that had left at the end of a sample; empty for a minute or an hour.
    pub(in super::super) left: BTreeSet<i64>,
}

/// Decodes the blob of a usage that began at `from`, to be read once in order.
pub(in super::super) fn decode_in_order(
    blob: &[u8],
    from: Timestamp,
) -> Result<DecodedUsage, BlobError> {
    let packed = BlobReader::open(blob, from)?;
    let (until, seen_ms) = (packed.until, packed.seen_ms);
    let (devices, mut packed) = packed.devices()?;
    let mut runs = Vec::with_capacity(packed.remaining.min(1 << 10));
    for run in packed.by_ref() {
        let run = run?;
        runs.push((run.id, run.usage()?));
    }
    let left = packed.rest.take_ids()?;
    if packed.rest.take_flag()? {
        let codes = packed.rest.take_half_bytes(runs.len())?;
        for ((_, run), code) in runs.iter_mut().zip(codes) {
            run.cpu = CpuUse::from_code(code).ok_or(BlobError)?;
        }
    }
    Ok(DecodedUsage {
        from,
        until,
        seen_ms,
        devices,
        runs,
        left,
    })
}

/// Decodes only the end and the covered time of a usage that began at `from`.
pub(in super::super) fn decode_span(
    blob: &[u8],
    from: Timestamp,
) -> Result<(Timestamp, u64), BlobError> {
    let packed = BlobReader::open(blob, from)?;
    Ok((packed.until, packed.seen_ms))
}

/// A blob with devices that are not decoded yet.
pub(in super::super) struct BlobReader<'a> {
    pub(in super::super) until: Timestamp,
    pub(in super::super) seen_ms: u64,
    rest: BlobCursor<'a>,
}

/// The runs of a blob, in the order of their ids.
pub(in super::super) struct BlobRuns<'a> {
    seen_ms: u64,
    rest: BlobCursor<'a>,
    remaining: usize,
    last_id: i64,
}

/// One run, of which only the id is computed.
pub(in super::super) struct BlobRun {
    pub(in super::super) id: i64,
    seen_ms: u64,
    unheld_ms: u64,
    busy_ms: u64,
    idle_ms: u64,
    unknown_ms: u64,
    memory: DecodedGauge,
    utilization: DecodedGauge,
    connections: DecodedGauge,
}

impl<'a> BlobReader<'a> {
    /// Opens the blob of a usage that began at `from`.
    pub(in super::super) fn open(blob: &'a [u8], from: Timestamp) -> Result<Self, BlobError> {
        let (version, rest) = blob.split_first().ok_or(BlobError)?;
        if *version != VERSION {
            return Err(BlobError);
        }
        let mut rest = BlobCursor(rest);
        let length = i64::try_from(rest.take_number()?).map_err(|_| BlobError)?;
        let seen_ms = rest.take_number()?;
        Ok(Self {
            until: Timestamp(from.0.checked_add(length).ok_or(BlobError)?),
            seen_ms,
            rest,
        })
    }

    /// Decodes the devices, in the order of their ids; the runs follow.
    pub(in super::super) fn devices(
        mut self,
    ) -> Result<(Vec<(i64, DeviceUsage)>, BlobRuns<'a>), BlobError> {
        let (mut devices, mut before) = (Vec::new(), 0);
        for _ in 0..self.rest.take_length()? {
            before = add_step(before, self.rest.take_number()?)?;
            devices.push((before, self.rest.take_device(self.seen_ms)?));
        }
        Ok((devices, self.runs()?))
    }

    /// Decodes only the index of each device; the runs follow.
    pub(in super::super) fn indices(
        mut self,
    ) -> Result<(Vec<(i64, u32)>, BlobRuns<'a>), BlobError> {
        let (mut indices, mut before) = (Vec::new(), 0);
        for _ in 0..self.rest.take_length()? {
            before = add_step(before, self.rest.take_number()?)?;
            indices.push((before, self.rest.take_device_index()?));
        }
        Ok((indices, self.runs()?))
    }

    fn runs(mut self) -> Result<BlobRuns<'a>, BlobError> {
        let left = usize::try_from(self.rest.take_length()?).map_err(|_| BlobError)?;
        Ok(BlobRuns {
            seen_ms: self.seen_ms,
            rest: self.rest,
            remaining: left,
            last_id: 0,
        })
    }
}

impl Iterator for BlobRuns<'_> {
    type Item = Result<BlobRun, BlobError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let read = self.read_run();
        if read.is_err() {
            self.remaining = 0;
        }
        Some(read)
    }
}

impl BlobRuns<'_> {
    /// The id of the next run; `None` after the last. The caller then reads the rest of the run
    /// with [`BlobRuns::usage`] or [`BlobRuns::skip_usage`].
    pub(in super::super) fn next_id(&mut self) -> Result<Option<i64>, BlobError> {
        let Some(left) = self.remaining.checked_sub(1) else {
            return Ok(None);
        };
        self.remaining = left;
        self.last_id = add_step(self.last_id, self.rest.take_number()?)?;
        Ok(Some(self.last_id))
    }

    /// The usage of the run with the id that was read.
    pub(in super::super) fn usage(&mut self) -> Result<RunUsage, BlobError> {
        self.read_run_body()?.usage()
    }

    /// Skips the usage of the run with the id that was read.
    pub(in super::super) fn skip_usage(&mut self) -> Result<(), BlobError> {
        for _ in 0..4 {
            self.rest.skip_number()?;
        }
        for _ in 0..3 {
            self.rest.skip_value()?;
        }
        Ok(())
    }

    fn read_run(&mut self) -> Result<BlobRun, BlobError> {
        self.last_id = add_step(self.last_id, self.rest.take_number()?)?;
        self.read_run_body()
    }

    fn read_run_body(&mut self) -> Result<BlobRun, BlobError> {
        Ok(BlobRun {
            id: self.last_id,
            seen_ms: self.seen_ms,
            unheld_ms: self.rest.take_number()?,
            busy_ms: self.rest.take_number()?,
            idle_ms: self.rest.take_number()?,
            unknown_ms: self.rest.take_number()?,
            memory: self.rest.take_gauge()?,
            utilization: self.rest.take_gauge()?,
            connections: self.rest.take_gauge()?,
        })
    }
}

impl BlobRun {
    pub(in super::super) fn usage(self) -> Result<RunUsage, BlobError> {
        let ms = self.seen_ms.checked_sub(self.unheld_ms).ok_or(BlobError)?;
        Ok(RunUsage {
            held_ms: ms,
            busy_ms: self.busy_ms,
            idle_ms: self.idle_ms,
            unknown_ms: self.unknown_ms,
            memory: self.memory.to_gauge(ms)?,
            utilization: self.utilization.to_gauge(ms)?,
            connections: self.connections.to_gauge(ms)?,
            // The processor time of all runs is at the end of the blob.
            cpu: CpuUse::default(),
        })
    }
}

impl BlobCursor<'_> {
    /// Decodes ids, each written as the distance from the previous one.
    fn take_ids(&mut self) -> Result<BTreeSet<i64>, BlobError> {
        let (mut ids, mut before) = (BTreeSet::new(), 0);
        for _ in 0..self.take_length()? {
            before = add_step(before, self.take_number()?)?;
            ids.insert(before);
        }
        Ok(ids)
    }
}

/// The id at this distance from the previous one.
fn add_step(before: i64, step: u64) -> Result<i64, BlobError> {
    let step = i64::try_from(step).map_err(|_| BlobError)?;
    before
        .checked_add(step)
        .filter(|id| *id > before)
        .ok_or(BlobError)
}

#[cfg(test)]
mod tests {
    use super::super::{encode, encode_sample};
    use super::*;
    use gpukill_policy::usage::Gauge;
    use proptest::prelude::*;

    fn gauge(ms: u64) -> impl Strategy<Value = Gauge> {
        let max = prop_oneof![
            any::<u32>().prop_map(u64::from),
            (0..1_u64 << 43).prop_map(|it| it << 20)
        ];
        let part = prop_oneof![Just(0), Just(ms), 0..=ms];
        let known = (max, part, 0..=1_000_u64, any::<bool>());
        let known = known.prop_map(|(max, known_ms, share, is_failed)| Gauge {
            max: Some(max),
            known_ms,
            total: u128::from(max) * u128::from(known_ms) * u128::from(share) / 1_000,
            is_failed,
        });
        let unknown = any::<bool>().prop_map(|is_failed| Gauge {
            is_failed,
            ..Gauge::default()
        });
        prop_oneof![known, unknown]
    }

    fn usage() -> impl Strategy<Value = StoredUsage> {
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
            (devices, runs).prop_map(move |(devices, runs)| StoredUsage {
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
        fn skipping_does_not_change_the_rest(usage in usage(), odd in any::<bool>()) {
            let blob = encode(&usage);
            let (_, mut runs) = BlobReader::open(&blob, usage.from).unwrap().devices().unwrap();
            let (mut read, mut is_wanted) = (Vec::new(), odd);
            while let Some(id) = runs.next_id().unwrap() {
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
            // Only the end remains: the runs that had left, and the processor time.
            let has_cpu = usage.runs.values().any(|run| run.cpu != CpuUse::default());
            let end = if has_cpu { usage.runs.len().div_ceil(2) } else { 0 };
            prop_assert_eq!(runs.rest.0.len(), 2 + end);
            let (indices, mut runs) = BlobReader::open(&blob, usage.from).unwrap().indices().unwrap();
            let all = usage.devices.iter().map(|(id, device)| (*id, device.index));
            prop_assert_eq!(indices, all.collect::<Vec<_>>());
            prop_assert_eq!(runs.next_id().unwrap(), first);
        }

        #[test]
        fn round_trips(usage in usage()) {
            let blob = encode(&usage);
            prop_assert_eq!(decode(&blob, usage.from), Ok(usage.clone()));
            let mut other = blob.clone();
            other[0] = VERSION + 1;
            prop_assert_eq!(decode(&other, usage.from), Err(BlobError));
            // A truncated blob is an error.
            for end in 0..blob.len() {
                prop_assert_eq!(decode(&blob[..end], usage.from), Err(BlobError));
            }
        }

        #[test]
        fn departed_runs_round_trip(
            usage in usage(),
            left in prop::collection::btree_set(1..i64::MAX, 0..4),
        ) {
            let blob = encode_sample(&usage, &left);
            let decoded = decode_in_order(&blob, usage.from).map(|it| it.left);
            prop_assert_eq!(decoded, Ok(left));
            prop_assert_eq!(decode(&blob, usage.from), Ok(usage.clone()));
            for end in 0..blob.len() {
                prop_assert_eq!(decode(&blob[..end], usage.from), Err(BlobError));
            }
        }

        #[test]
        fn any_bytes_are_handled(mut blob in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&blob, Timestamp(0));
            blob.insert(0, VERSION);
            let _ = decode(&blob, Timestamp(0));
        }
    }
}
