//! Adds up rows run by run, as they are packed: a row has hundreds of bytes of a run that
//! is unpacked, and some ten of one that is not.

use super::super::packed::{Broken, Packed, PackedRuns, Runs, Stored, read};
use gpukill_policy::usage::{CpuUse, RunUsage, Usage};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A sample or a minute, as it is stored.
pub(super) struct Row {
    at: Timestamp,
    blob: Vec<u8>,
    /// Of each run, which stand behind all of them.
    cpu: Vec<CpuUse>,
}

impl Row {
    /// A row that began then.
    ///
    /// # Errors
    /// When not all of it can be read.
    pub(super) fn read(blob: &[u8], at: Timestamp) -> Result<Self, Broken> {
        let runs = read(blob, at)?.runs;
        Ok(Self {
            at,
            blob: blob.to_vec(),
            cpu: runs.iter().map(|(_, run)| run.cpu).collect(),
        })
    }
}

/// What some of them come to.
pub(super) struct Summed {
    pub(super) from: Timestamp,
    pub(super) blob: Vec<u8>,
}

/// What they come to for one run.
pub(super) struct RunSum<'a> {
    pub(super) id: i64,
    pub(super) usage: &'a RunUsage,
    /// When the last of the rows ended.
    pub(super) until: Timestamp,
    /// When the last row ended in which it used its device.
    pub(super) active: Option<Timestamp>,
}

/// Adds up these rows, in their order; `None` where there are none. Tells of each run, in
/// the order of their ids.
///
/// # Errors
/// The first of `each`.
pub(super) fn sum(
    rows: &[Row],
    each: &mut dyn FnMut(&RunSum<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Option<Summed>> {
    let mut whole: Option<Stored> = None;
    let mut open = Vec::new();
    for row in rows {
        let Ok((head, runs)) = opened(row) else {
            continue;
        };
        open.push(Open::new(head.until, runs, &row.cpu));
        match &mut whole {
            Some(whole) => whole.merge(&head),
            None => whole = Some(head),
        }
    }
    let Some(whole) = whole else {
        return Ok(None);
    };
    let mut packed = PackedRuns::of(whole.seen_ms);
    while let Some(id) = open.iter().filter_map(Open::id).min() {
        let (mut usage, mut active) = (RunUsage::default(), None);
        for row in open.iter_mut().filter(|row| row.id() == Some(id)) {
            if let Some((_, more)) = row.take() {
                if is_active(&more) {
                    active = Some(row.until);
                }
                usage.merge(&more);
            }
        }
        packed.add(id, &usage);
        each(&RunSum {
            id,
            usage: &usage,
            until: whole.until,
            active,
        })?;
    }
    Ok(Some(Summed {
        from: whole.from,
        blob: packed.whole(&whole, &BTreeSet::new()),
    }))
}

/// The runs of a row, and when it ended.
pub(super) fn runs(row: &Row) -> Result<(Timestamp, Vec<(i64, bool)>), Broken> {
    let (head, runs) = opened(row)?;
    let runs = runs.map(|run| {
        let run = run?;
        Ok((run.id, is_active(&run.usage()?)))
    });
    Ok((head.until, runs.collect::<Result<_, Broken>>()?))
}

/// Whether a run used its device.
fn is_active(usage: &RunUsage) -> bool {
    usage.utilization.most.is_some_and(|most| most > 0)
}

/// All of a row but its runs, and these.
fn opened(row: &Row) -> Result<(Stored, Runs<'_>), Broken> {
    let packed = Packed::open(&row.blob, row.at)?;
    let (until, seen_ms) = (packed.until, packed.seen_ms);
    let (devices, runs) = packed.devices()?;
    let head = Usage {
        from: row.at,
        until,
        seen_ms,
        devices: devices.into_iter().collect(),
        runs: BTreeMap::new(),
    };
    Ok((head, runs))
}

/// A row whose runs are gone through.
struct Open<'a> {
    until: Timestamp,
    runs: Runs<'a>,
    cpu: std::slice::Iter<'a, CpuUse>,
    next: Option<(i64, RunUsage)>,
}

impl<'a> Open<'a> {
    fn new(until: Timestamp, runs: Runs<'a>, cpu: &'a [CpuUse]) -> Self {
        let mut open = Self {
            until,
            runs,
            cpu: cpu.iter(),
            next: None,
        };
        open.take();
        open
    }

    fn id(&self) -> Option<i64> {
        self.next.as_ref().map(|(id, _)| *id)
    }

    fn take(&mut self) -> Option<(i64, RunUsage)> {
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
    use super::super::super::packed::{pack, unpack};
    use super::*;
    use gpukill_policy::usage::{DeviceUsage, Gauge};

    /// A stretch of a second, in which each of these runs held this much memory.
    fn second(nth: i64, runs: &[(i64, u64)]) -> Stored {
        let at = Timestamp(1_000 * nth);
        let of = |held: u64, busy: u64| RunUsage {
            held_ms: 1_000,
            idle_ms: 1_000,
            memory: Gauge {
                most: Some(held),
                known_ms: 1_000,
                total: u128::from(held) * 1_000,
                is_failed: false,
            },
            utilization: Gauge {
                most: Some(busy),
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

    fn row(stored: &Stored) -> Row {
        Row::read(&pack(stored), stored.from).unwrap()
    }

    #[test]
    fn what_is_added_up_packed_is_what_it_comes_to_unpacked() {
        let seconds = [
            second(60, &[(1, 5), (2, 6), (9, 1)]),
            second(61, &[]),
            second(62, &[(2, 7), (3, 8), (i64::MAX, 4)]),
            second(63, &[(1, 2), (2, 2)]),
        ];
        let mut expected = seconds[0].clone();
        seconds[1..].iter().for_each(|more| expected.merge(more));
        let rows: Vec<Row> = seconds.iter().map(row).collect();
        let mut told = Vec::new();
        let summed = sum(&rows, &mut |run| {
            assert_eq!(
                (run.until, run.usage),
                (expected.until, &expected.runs[&run.id])
            );
            told.push((run.id, run.active.map(|at| at.0 / 1_000)));
            Ok(())
        });
        let summed = summed.unwrap().unwrap();
        assert_eq!(summed.from, expected.from);
        assert_eq!(unpack(&summed.blob, summed.from), Ok(expected));
        let active = [
            (1, Some(61)),
            (2, Some(63)),
            (3, None),
            (9, Some(61)),
            (i64::MAX, None),
        ];
        assert_eq!(told, active);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let good = second(60, &[(1, 5)]);
        let mut torn = pack(&good);
        torn.pop();
        assert!(Row::read(&torn, good.from).is_err());
        let of = |rows: &[Row]| sum(rows, &mut |_| Ok(())).unwrap();
        assert!(of(&[]).is_none());
        let odd = Row {
            blob: b"odd".to_vec(),
            ..row(&good)
        };
        assert!(of(&[odd]).is_none());
    }
}
