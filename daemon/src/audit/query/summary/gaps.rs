//! When nothing was seen: the box slept, or the daemon was not there.

use super::super::super::packed::{Unpacked, span};
use super::super::Failure;
use super::super::range::{Level, row_before};
use gpukill_proto::audit::Gap;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// So many are told of, the longest.
const MOST_TOLD: usize = 100;

/// So many samples without one are a gap. A daemon that is started anew, after an
/// upgrade say, is back sooner.
const SAMPLES: u64 = 3;

/// How long a sample is where there is none to tell.
const SAMPLE_MS: u64 = 10_000;

/// From so many of the newest samples it is known how long one is.
const NEWEST: i64 = 15;

/// Looks for gaps between rows, in their order, and within them.
pub(super) struct Gaps<'a> {
    connection: &'a Connection,
    /// What is longer is a gap.
    longest_ms: u64,
    /// When the row before ended.
    seen_until: Option<Timestamp>,
    /// The longest, of which the shortest comes first.
    found: BinaryHeap<Reverse<(u64, i64, i64)>>,
}

impl<'a> Gaps<'a> {
    pub(super) fn new(connection: &'a Connection) -> Result<Self, Failure> {
        Ok(Self {
            connection,
            longest_ms: sample_ms(connection)?.saturating_mul(SAMPLES),
            seen_until: None,
            found: BinaryHeap::new(),
        })
    }

    /// Adds a row.
    pub(super) fn add(&mut self, level: Level, id: i64, row: &Unpacked) -> Result<(), Failure> {
        if let Some(before) = self.seen_until {
            self.between(before, row.from);
        }
        self.within(level, id, (row.from, row.until), row.seen_ms)?;
        self.seen_until = Some(row.until);
        Ok(())
    }

    /// Where a row tells of less time than it spans, a gap may be in it; the finer
    /// rows tell where, as long as there are some.
    fn within(
        &mut self,
        level: Level,
        id: i64,
        (from, until): (Timestamp, Timestamp),
        seen_ms: u64,
    ) -> Result<(), Failure> {
        let unseen = length(from, until).saturating_sub(seen_ms);
        // A sample never has a gap in it. One that is long is of a clock that was
        // set.
        let (Some(finer), true) = (level.finer(), unseen > self.longest_ms) else {
            return Ok(());
        };
        let before = row_before(self.connection, level, id)?;
        let mut seen_until = None;
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT id, at, usage FROM {} WHERE id > ?1 AND id <= ?2 ORDER BY id",
            finer.table()
        ))?;
        let mut rows = statement.query([before, id])?;
        while let Some(row) = rows.next()? {
            let (id, from) = (row.get(0)?, Timestamp(row.get(1)?));
            let blob = row.get_ref(2)?.as_blob().unwrap_or_default();
            let Ok((until, seen_ms)) = span(blob, from) else {
                continue;
            };
            if let Some(before) = seen_until {
                self.between(before, from);
            }
            self.within(finer, id, (from, until), seen_ms)?;
            seen_until = Some(until);
        }
        Ok(())
    }

    fn between(&mut self, from: Timestamp, until: Timestamp) {
        let length = length(from, until);
        if length > self.longest_ms {
            self.found.push(Reverse((length, from.0, until.0)));
            if self.found.len() > MOST_TOLD {
                self.found.pop();
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = self
            .found
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

fn length(from: Timestamp, until: Timestamp) -> u64 {
    until.0.saturating_sub(from.0).max(0).unsigned_abs()
}

/// How long a sample is: as most of the newest are.
fn sample_ms(connection: &Connection) -> Result<u64, Failure> {
    let mut statement =
        connection.prepare_cached("SELECT at, usage FROM sample ORDER BY id DESC LIMIT ?1")?;
    let mut rows = statement.query([NEWEST])?;
    let mut lengths = Vec::new();
    while let Some(row) = rows.next()? {
        let blob = row.get_ref(1)?.as_blob().unwrap_or_default();
        if let Ok((_, seen_ms)) = span(blob, Timestamp(row.get(0)?)) {
            lengths.push(seen_ms);
        }
    }
    lengths.sort_unstable();
    let middle = lengths.get(lengths.len() / 2).copied();
    Ok(middle.filter(|ms| *ms > 0).unwrap_or(SAMPLE_MS))
}
