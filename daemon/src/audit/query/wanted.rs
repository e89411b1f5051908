//! Where a page finds what it is about, without reading all that there is.

use super::super::packed::Packed;
use super::Failure;
use super::filter::{Extent, Scope, StoredRun, each_named_run, each_run};
use super::range::{Level, Rows, row_of};
use gpukill_proto::audit::AuditFilter;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::collections::HashMap;

/// What a page is about.
pub(super) struct Wanted<'a> {
    pub(super) scope: Scope<'a>,
    /// The samples in which something wanted may be, from the first to the last of
    /// each stretch, the newest first. `None` as long as nobody looked for them.
    stretches: Option<Vec<(i64, i64)>>,
    /// The runs that were asked for so far, and whether they are wanted.
    runs: HashMap<i64, Option<Box<StoredRun>>>,
}

/// So many runs that were looked up are kept: several times those of a sample.
const MOST_KEPT: usize = 1 << 14;

impl<'a> Wanted<'a> {
    /// What `filter` asks for.
    pub(super) fn of(connection: &Connection, filter: &'a AuditFilter) -> Result<Self, Failure> {
        let scope = Scope::of(connection, filter)?;
        Ok(Self {
            stretches: scope.is_all().then(|| vec![(0, i64::MAX)]),
            scope,
            runs: HashMap::new(),
        })
    }

    /// Whether a run is wanted.
    pub(super) fn has(&mut self, connection: &Connection, run: i64) -> Result<bool, Failure> {
        if let Some(known) = self.runs.get(&run) {
            return Ok(known.is_some());
        }
        let mut stored = None;
        each_run(connection, &self.scope, Extent::All, (run, run), |row| {
            stored = Some(Box::new(row.stored()?));
            Ok(())
        })?;
        let is_wanted = stored.is_some();
        self.runs.insert(run, stored);
        Ok(is_wanted)
    }

    /// A run of which it was asked, where it is wanted.
    pub(super) fn run(&self, run: i64) -> Option<&StoredRun> {
        self.runs.get(&run)?.as_deref()
    }

    /// Forgets runs that were asked for, where they are many.
    pub(super) fn forget_many(&mut self) {
        if self.runs.len() >= MOST_KEPT {
            self.runs.clear();
        }
    }

    /// Whether it is known where something wanted is.
    pub(super) const fn is_found(&self) -> bool {
        self.stretches.is_some()
    }

    /// Finds out in which samples something wanted is.
    pub(super) fn find(&mut self, connection: &Connection) -> Result<(), Failure> {
        let found = if self.scope.is_of_processes {
            of_runs(connection, &self.scope)?
        } else {
            of_devices(connection, &self.scope)?
        };
        self.stretches = Some(joined(found));
        Ok(())
    }

    /// The newest of these rows in which something wanted may be, and those before
    /// them up to which this is so. Those that are older than these come next.
    pub(super) fn newest(
        &self,
        connection: &Connection,
        rows: Rows,
    ) -> Result<Option<Rows>, Failure> {
        let Some(stretches) = &self.stretches else {
            return Ok(None);
        };
        let at = stretches.partition_point(|(first, _)| *first >= rows.end);
        let Some(&(first, last)) = stretches.get(at) else {
            return Ok(None);
        };
        let last = match rows.level {
            Level::Samples => last,
            Level::Minutes | Level::Hours => row_of(connection, rows.level, last)?,
        };
        let first = first.max(rows.first);
        let end = last.saturating_add(1).min(rows.end);
        Ok((first < end).then_some(Rows { first, end, ..rows }))
    }
}

/// The samples that tell of each run that is wanted.
fn of_runs(connection: &Connection, scope: &Scope<'_>) -> Result<Vec<(i64, i64)>, Failure> {
    let mut found = Vec::new();
    each_named_run(connection, scope, |run| {
        found.push(run.samples()?);
        Ok(())
    })?;
    Ok(found)
}

/// The samples of the hours in which a device was there that is wanted, and those
/// that are in no hour.
fn of_devices(connection: &Connection, scope: &Scope<'_>) -> Result<Vec<(i64, i64)>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT id, CASE WHEN at >= ?1 AND at < ?2 THEN usage END FROM hour ORDER BY id",
    )?;
    let since = Level::Hours.floor(scope.filter.since.0);
    let mut rows = statement.query([since, scope.filter.until.0])?;
    let (mut found, mut first) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let last: i64 = row.get(0)?;
        let blob = row.get_ref(1)?.as_blob_or_null().ok().flatten();
        let devices = blob.and_then(|blob| Packed::open(blob, Timestamp(0)).ok()?.devices().ok());
        let is_there = devices
            .is_some_and(|(devices, _)| devices.iter().any(|(id, _)| scope.devices.contains(id)));
        // Of what is older than the first hour nothing is known.
        if is_there || first == 0 {
            found.push((first, last));
        }
        first = last.saturating_add(1);
    }
    found.push((first, i64::MAX));
    Ok(found)
}

/// Stretches that do not touch, the newest first.
fn joined(mut found: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    found.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (first, last) in found {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            Some(_) | None => joined.push((first, last)),
        }
    }
    joined.reverse();
    joined
}
