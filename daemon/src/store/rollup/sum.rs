//! Sums up encoded rows run by run: a run takes hundreds of bytes decoded, and about ten encoded.

use super::super::blob::{
    BlobError, BlobReader, BlobRuns, RunEncoder, StoredUsage, decode_in_order,
};
use gpukill_policy::usage::{CpuUse, RunUsage, Usage};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A sample or a minute as it is stored.
pub(super) struct EncodedRow {
    at: Timestamp,
    blob: Vec<u8>,
    /// The processor time of each run, which is stored after all runs.
    cpu: Vec<CpuUse>,
}

impl EncodedRow {
    /// Reads a row that began at `at`.
    pub(super) fn read(blob: &[u8], at: Timestamp) -> Result<Self, BlobError> {
        let runs = decode_in_order(blob, at)?.runs;
        Ok(Self {
            at,
            blob: blob.to_vec(),
            cpu: runs.iter().map(|(_, run)| run.cpu).collect(),
        })
    }
}

/// The sum of some rows.
pub(super) struct SummedRow {
    pub(super) from: Timestamp,
    pub(super) blob: Vec<u8>,
}

pub(super) struct RunSum<'a> {
    pub(super) id: i64,
    pub(super) usage: &'a RunUsage,
    /// The time in which the process itself was busy, and in which it was idle.
    pub(super) process_times: (u64, u64),
    /// The end of the last row with the run.
    pub(super) until: Timestamp,
    /// The end of the last row in which the run used its device.
    pub(super) last_active: Option<Timestamp>,
}

/// Sums up these rows, in their order; `None` if there are none. Calls `each` for each run, in the
/// order of their ids.
///
/// # Errors
/// The first error of `each`.
pub(super) fn sum_rows(
    rows: &[EncodedRow],
    each: &mut dyn FnMut(&RunSum<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Option<SummedRow>> {
    let mut merged: Option<StoredUsage> = None;
    let mut open = Vec::new();
    for row in rows {
        let Ok((head, runs)) = open_row(row) else {
            continue;
        };
        open.push(RowCursor::new(head.until, runs, &row.cpu));
        match &mut merged {
            Some(merged) => merged.merge(&head),
            None => merged = Some(head),
        }
    }
    let Some(merged) = merged else {
        return Ok(None);
    };
    let mut packed = RunEncoder::new(merged.seen_ms);
    while let Some(id) = open.iter().filter_map(RowCursor::next_id).min() {
        let (mut usage, mut active) = (RunUsage::default(), None);
        let mut until = merged.from;
        let mut process_times = (0_u64, 0_u64);
        for row in open.iter_mut().filter(|row| row.next_id() == Some(id)) {
            if let Some((_, more)) = row.take_run() {
                until = until.max(row.until);
                if is_active(&more) {
                    active = Some(row.until);
                }
                let (busy, idle) = more.process_times();
                process_times.0 = process_times.0.saturating_add(busy);
                process_times.1 = process_times.1.saturating_add(idle);
                usage.merge(&more);
            }
        }
        packed.add(id, &usage);
        each(&RunSum {
            id,
            usage: &usage,
            process_times,
            until,
            last_active: active,
        })?;
    }
    Ok(Some(SummedRow {
        from: merged.from,
        blob: packed.finish(&merged, &BTreeSet::new()),
    }))
}

/// The end of a row, and its runs, each with whether it used its device.
pub(super) fn row_runs(row: &EncodedRow) -> Result<(Timestamp, Vec<(i64, bool)>), BlobError> {
    let (head, runs) = open_row(row)?;
    let runs = runs.map(|run| {
        let run = run?;
        Ok((run.id, is_active(&run.usage()?)))
    });
    Ok((head.until, runs.collect::<Result<_, BlobError>>()?))
}

/// Whether a run used its device.
fn is_active(usage: &RunUsage) -> bool {
    usage.utilization.max.is_some_and(|max| max > 0)
}

/// Decodes a row except for its runs, which are returned encoded.
fn open_row(row: &EncodedRow) -> Result<(StoredUsage, BlobRuns<'_>), BlobError> {
    let packed = BlobReader::open(&row.blob, row.at)?;
    let (until, seen_ms) = (packed.until, packed.seen_ms);
    let (devices, runs) = packed.devices()?;
    let head = Usage {
        from: row.at,
        until,
        seen_ms,
        devices: devices.into_iter().into_map(),
        runs: BTreeMap::new(),
    };
    Ok((head, runs))
}

/// A row with runs that are read one after another.
struct RowCursor<'a> {
    until: Timestamp,
    runs: BlobRuns<'a>,
    cpu: std::slice::Iter<'a, CpuUse>,
    next: Option<(i64, RunUsage)>,
}

impl<'a> RowCursor<'a> {
    fn new(until: Timestamp, runs: BlobRuns<'a>, cpu: &'a [CpuUse]) -> Self {
        let mut open = Self {
            until,
            runs,
            cpu: cpu.iter(),
            next: None,
        };
        open.take_run();
        open
    }

    fn next_id(&self) -> Option<i64> {
        self.next.as_ref().map(|(id, _)| *id)
    }

    fn take_run(&mut self) -> Option<(i64, RunUsage)> {
        let next = self.runs.next().and_then(|run| {
            let (run, cpu) = (run.ok()?, *self.cpu.next()?);
            let (id, usage) = (run.id, run.usage().ok()?);
            Some((id, RunUsage { cpu, ..usage }))
        });
        std::mem::replace(&mut self.next, next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::blob::{decode, encode};
    use super::*;
    use gpukill_policy::usage::{DeviceUsage, Gauge};

    /// The usage of one second, in which each of these runs held this much memory.
    fn second(nth: i64, runs: &[(i64, u64)]) -> StoredUsage {
        let at = Timestamp(1_000 * nth);
        let of = |held: u64, busy: u64| RunUsage {
            held_ms: 1_000,
            idle_ms: 1_000,
            memory: Gauge {
                max: Some(held),
                known_ms: 1_000,
                total: u128::from(held) * 1_000,
                is_failed: false,
            },
            utilization: Gauge {
                max: Some(busy),
                known_ms: 1_000,
                total: u128::from(busy) * 1_000,
                is_failed: false,
            },
            cpu: CpuUse::from_code(u8::try_from(held).unwrap()).unwrap(),
            ..RunUsage::default()
        };
        let device = DeviceUsage {
            index: 3,
            held_ms: 1_000,
            ..DeviceUsage::default()
        };
        Usage {
            from: at,
            until: Timestamp(at.0 + 1_000),
            seen_ms: 1_000,
            devices: BTreeMap::from([(7, device)]),
            runs: runs
                .iter()
                .map(|(id, held)| (*id, of(*held, held % 2)))
                .collect(),
        }
    }

    fn row(stored: &StoredUsage) -> EncodedRow {
        EncodedRow::read(&encode(stored), stored.from).unwrap()
    }

    #[test]
    fn encoded_sum_equals_decoded_sum() {
        let seconds = [
            second(60, &[(1, 5), (2, 6), (9, 1)]),
            second(61, &[]),
            second(62, &[(2, 7), (3, 8), (i64::MAX, 4)]),
            second(63, &[(1, 2), (2, 2)]),
        ];
        let mut expected = seconds[0].clone();
        seconds[1..].iter().for_each(|more| expected.merge(more));
        let rows: Vec<EncodedRow> = seconds.iter().map(row).collect();
        let mut read = Vec::new();
        let summed = sum_rows(&rows, &mut |run| {
            assert_eq!(run.usage, &expected.runs[&run.id]);
            let last_active = run.last_active.map(|at| at.0 / 1_000);
            read.push((run.id, run.until.0 / 1_000, last_active));
            // Each second is of a process without others of its owner.
            assert_eq!(run.process_times, (0, run.usage.held_ms));
            Ok(())
        });
        let summed = summed.unwrap().unwrap();
        assert_eq!(summed.from, expected.from);
        assert_eq!(decode(&summed.blob, summed.from), Ok(expected));
        let times = [
            (1, 64, Some(61)),
            (2, 64, Some(63)),
            (3, 63, None),
            (9, 61, Some(61)),
            (i64::MAX, 63, None),
        ];
        assert_eq!(read, times);
    }

    #[test]
    fn skips_unreadable_rows() {
        let good = second(60, &[(1, 5)]);
        let mut torn = encode(&good);
        torn.pop();
        assert!(EncodedRow::read(&torn, good.from).is_err());
        let of = |rows: &[EncodedRow]| sum_rows(rows, &mut |_| Ok(())).unwrap();
        assert!(of(&[]).is_none());
        let invalid = EncodedRow {
            blob: b"odd".to_vec(),
            ..row(&good)
        };
        assert!(of(&[invalid]).is_none());
    }
}
