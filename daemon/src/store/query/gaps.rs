//! Finds the times without samples: the host was asleep, or the daemon was not running.

use super::super::blob::decode_span;
use super::range::{CoveredRows, RollupLevel, covering_rows, for_each_blob, previous_row};
use super::{Deadline, QueryError};
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
pub(in super::super) struct GapFinder<'a> {
    connection: &'a Connection,
    max_pause_ms: u64,
    previous_end: Option<Timestamp>,
    /// The longest gaps; the shortest of them is on top of the heap.
    gaps: BinaryHeap<Reverse<(u64, i64, i64)>>,
}

impl<'a> GapFinder<'a> {
    /// Looks for gaps in a period that begins at `since`. A gap that began before the period is
    /// reported from its own beginning on.
    pub(in super::super) fn new(
        connection: &'a Connection,
        since: Timestamp,
    ) -> Result<Self, QueryError> {
        Ok(Self {
            connection,
            max_pause_ms: median_sample_ms(connection)?.saturating_mul(MIN_GAP_SAMPLES),
            previous_end: last_end_before(connection, since)?,
            gaps: BinaryHeap::new(),
        })
    }

    /// A longer pause between rows is a gap.
    pub(super) const fn max_pause_ms(&self) -> u64 {
        self.max_pause_ms
    }

    /// Adds a row that spans this period and covers this time of it.
    pub(super) fn add(
        &mut self,
        level: RollupLevel,
        id: i64,
        (from, until): (Timestamp, Timestamp),
        seen_ms: u64,
    ) -> Result<(), QueryError> {
        if let Some(before) = self.previous_end {
            self.add_pause(before, from);
        }
        self.find_inside(level, id, (from, until), seen_ms)?;
        self.previous_end = Some(until);
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

    /// The gaps, the oldest first. In a period that ends at `until`, the pause after the last row is
    /// one too: until the next row, or, while the recording has stopped, until the end of the period
    /// or `now`.
    pub(in super::super) fn finish(
        mut self,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<Gap>, QueryError> {
        if let Some(before) = self.previous_end.filter(|before| *before < until) {
            let next = first_start_from(self.connection, until)?;
            self.add_pause(before, next.unwrap_or(until.min(now)));
        }
        let mut gaps: Vec<Gap> = self
            .gaps
            .into_iter()
            .map(|Reverse((_, from, until))| Gap {
                from: Timestamp(from),
                until: Timestamp(until),
            })
            .collect();
        gaps.sort_indirect_by_key(|gap| gap.from);
        Ok(gaps)
    }
}

/// The end of the newest row that began before a time. A row of a coarser level has other times
/// inside, so that the row that began last tells the newest record.
fn last_end_before(
    connection: &Connection,
    time: Timestamp,
) -> Result<Option<Timestamp>, QueryError> {
    let mut newest: Option<(Timestamp, Timestamp)> = None;
    for level in RollupLevel::ALL {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT at, usage FROM {} WHERE at < ?1 ORDER BY at DESC LIMIT 1",
            level.table()
        ))?;
        let mut rows = statement.query([time.0])?;
        let Some(row) = rows.next()? else { continue };
        let from = Timestamp(row.get(0)?);
        let blob = row.get_ref(1)?.as_blob().unwrap_or_default();
        if let Ok((end, _)) = decode_span(blob, from)
            && newest.is_none_or(|(newest, _)| newest < from)
        {
            newest = Some((from, end));
        }
    }
    Ok(newest.map(|(_, end)| end))
}

/// The start of the oldest row that began at a time or later.
pub(super) fn first_start_from(
    connection: &Connection,
    time: Timestamp,
) -> Result<Option<Timestamp>, QueryError> {
    let mut oldest = None;
    for level in RollupLevel::ALL {
        let select = format!("SELECT min(at) FROM {} WHERE at >= ?1", level.table());
        let mut statement = connection.prepare_cached(&select)?;
        let start: Option<i64> = statement.query_row([time.0], |row| row.get(0))?;
        oldest = oldest.into_iter().chain(start.map(Timestamp)).min();
    }
    Ok(oldest)
}

/// The gaps in a period, without decoding more of each row than its times.
pub(super) fn read_gaps<'a>(
    connection: &'a Connection,
    (since, until): (Timestamp, Timestamp),
    deadline: Deadline,
) -> Result<GapFinder<'a>, QueryError> {
    let mut gaps = GapFinder::new(connection, since)?;
    for CoveredRows { rows, since, until } in
        covering_rows(connection, RollupLevel::Hours, since, until, deadline)?
    {
        for_each_blob(
            connection,
            rows,
            (since, until),
            deadline,
            |id, from, blob| match decode_span(blob, from) {
                Ok((until, seen_ms)) => gaps.add(rows.level, id, (from, until), seen_ms),
                Err(_) => Ok(()),
            },
        )?;
    }
    Ok(gaps)
}

fn duration_ms(from: Timestamp, until: Timestamp) -> u64 {
    until.0.saturating_sub(from.0).max(0).unsigned_abs()
}

/// The length of a sample: the median of the newest ones.
pub(super) fn median_sample_ms(connection: &Connection) -> Result<u64, QueryError> {
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
    lengths.sort_indirect();
    let middle = lengths.get(lengths.len() / 2).copied();
    Ok(middle.filter(|ms| *ms > 0).unwrap_or(DEFAULT_SAMPLE_MS))
}
