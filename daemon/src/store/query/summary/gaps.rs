//! Finds the times without samples: the host was asleep, or the daemon was not running.

use super::super::super::blob::{DecodedUsage, decode_span};
use super::super::QueryError;
use super::super::range::{RollupLevel, previous_row};
use gpukill_proto::audit::Gap;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most gaps that are reported; the longest are kept.
const MAX_GAPS: usize = 100;

/// A pause of more than this many samples is a gap. A restarted daemon, for example after an
/// upgrade, is back sooner.
const MIN_GAP_SAMPLES: u64 = 3;

/// The assumed length of a sample if there is none.
const DEFAULT_SAMPLE_MS: u64 = 10_000;

/// The number of newest samples from which the length of a sample is estimated.
const MEASURED_SAMPLES: i64 = 15;

/// Looks for gaps between rows, in their order, and within rows.
pub(super) struct GapFinder<'a> {
    connection: &'a Connection,
    /// A longer pause is a gap.
    max_pause_ms: u64,
    /// The end of the previous row.
    previous_end: Option<Timestamp>,
    /// The longest gaps; the shortest of them is on top of the heap.
    gaps: BinaryHeap<Reverse<(u64, i64, i64)>>,
}

impl<'a> GapFinder<'a> {
    pub(super) fn new(connection: &'a Connection) -> Result<Self, QueryError> {
        Ok(Self {
            connection,
            max_pause_ms: median_sample_ms(connection)?.saturating_mul(MIN_GAP_SAMPLES),
            previous_end: None,
            gaps: BinaryHeap::new(),
        })
    }

    /// Adds a row.
    pub(super) fn add(
        &mut self,
        level: RollupLevel,
        id: i64,
        row: &DecodedUsage,
    ) -> Result<(), QueryError> {
        if let Some(before) = self.previous_end {
            self.add_pause(before, row.from);
        }
        self.find_inside(level, id, (row.from, row.until), row.seen_ms)?;
        self.previous_end = Some(row.until);
        Ok(())
    }

    /// Looks for gaps inside a row that covers less time than it spans, in the finer rows if they
    /// still exist.
    fn find_inside(
        &mut self,
        level: RollupLevel,
        id: i64,
        (from, until): (Timestamp, Timestamp),
        seen_ms: u64,
    ) -> Result<(), QueryError> {
        let unknown_ms = duration_ms(from, until).saturating_sub(seen_ms);
        // A sample never contains a gap. A long one is the result of a clock change.
        let (Some(finer), true) = (level.finer(), unknown_ms > self.max_pause_ms) else {
            return Ok(());
        };
        let before = previous_row(self.connection, level, id)?;
        let mut seen_until = None;
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT id, at, usage FROM {} WHERE id > ?1 AND id <= ?2 ORDER BY id",
            finer.table()
        ))?;
        let mut rows = statement.query([before, id])?;
        while let Some(row) = rows.next()? {
            let (id, from) = (row.get(0)?, Timestamp(row.get(1)?));
            let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
            let Ok((until, seen_ms)) = decode_span(blob, from) else {
                continue;
            };
            if let Some(before) = seen_until {
                self.add_pause(before, from);
            }
            self.find_inside(finer, id, (from, until), seen_ms)?;
            seen_until = Some(until);
        }
        Ok(())
    }

    fn add_pause(&mut self, from: Timestamp, until: Timestamp) {
        let length = duration_ms(from, until);
        if length > self.max_pause_ms {
            self.gaps.push(Reverse((length, from.0, until.0)));
            if self.gaps.len() > MAX_GAPS {
                self.gaps.pop();
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = self
            .gaps
            .into_iter()
            .map(|Reverse((_, from, until))| Gap {
                from: Timestamp(from),
                until: Timestamp(until),
            })
            .collect();
        gaps.sort_indirect_by_key(|gap| gap.from);
        gaps
    }
}

fn duration_ms(from: Timestamp, until: Timestamp) -> u64 {
    until.0.saturating_sub(from.0).max(0).unsigned_abs()
}

/// The length of a sample: the median of the newest ones.
fn median_sample_ms(connection: &Connection) -> Result<u64, QueryError> {
    let mut statement =
        connection.prepare_cached("SELECT at, usage FROM sample ORDER BY id DESC LIMIT ?1")?;
    let mut rows = statement.query([MEASURED_SAMPLES])?;
    let mut lengths = Vec::new();
    while let Some(row) = rows.next()? {
        let blob = row.get_ref(1)?.as_blob().unwrap_or_default();
        if let Ok((_, seen_ms)) = decode_span(blob, Timestamp(row.get(0)?)) {
            lengths.push(seen_ms);
        }
    }
    lengths.sort_unstable();
    let middle = lengths.get(lengths.len() / 2).copied();
    Ok(middle.filter(|ms| *ms > 0).unwrap_or(DEFAULT_SAMPLE_MS))
}
