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
    /// Where something wanted may be, the newest first. `None` as long as nobody
    /// looked for it.
    stretches: Option<Vec<Stretch>>,
    /// The runs of the stretches, by their ids. `None` where they are not known.
    named: Option<Vec<i64>>,
    /// Which of them can be in the rows that are read now.
    expected: Expected,
    /// The runs that were asked for so far, and whether they are wanted.
    runs: HashMap<i64, Option<Box<StoredRun>>>,
}

/// Which runs of some rows can be wanted.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// It is not known.
    Any,
    /// Those of all stretches.
    Named,
    /// Those of this stretch.
    In(usize),
}

/// Samples in which something wanted may be.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    first: i64,
    last: i64,
    /// The runs that are wanted in these, in the order of their ids; none where
    /// devices are wanted.
    runs: Vec<i64>,
}

/// So many runs that were looked up are kept: several times those of a sample.
const MOST_KEPT: usize = 1 << 14;

impl<'a> Wanted<'a> {
    /// What `filter` asks for.
    pub(super) fn of(connection: &Connection, filter: &'a AuditFilter) -> Result<Self, Failure> {
        let scope = Scope::of(connection, filter)?;
        Ok(Self {
            stretches: scope
                .is_all()
                .then(|| vec![Stretch::new(0, i64::MAX, None)]),
            named: None,
            expected: Expected::Any,
            scope,
            runs: HashMap::new(),
        })
    }

    /// Whether a run is wanted.
    pub(super) fn has(&mut self, connection: &Connection, run: i64) -> Result<bool, Failure> {
        let expected = self.expected();
        if expected.is_some_and(|runs| runs.binary_search(&run).is_err()) {
            return Ok(false);
        }
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

    /// Whether no run is wanted that has this id or a higher one.
    pub(super) fn is_past(&self, run: i64) -> bool {
        let expected = self.expected();
        expected.is_some_and(|runs| runs.last().is_none_or(|last| *last < run))
    }

    fn expected(&self) -> Option<&[i64]> {
        match self.expected {
            Expected::Any => None,
            Expected::Named => self.named.as_deref(),
            Expected::In(at) => {
                let stretch = self.stretches.as_ref()?.get(at)?;
                self.named.is_some().then_some(stretch.runs.as_slice())
            }
        }
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
        let stretches = joined(found);
        if self.scope.is_of_processes {
            let runs = stretches.iter().flat_map(|it| &it.runs).copied();
            let mut runs: Vec<i64> = runs.collect();
            runs.sort_unstable();
            self.named = Some(runs);
        }
        self.stretches = Some(stretches);
        Ok(())
    }

    /// The newest of these rows in which something wanted may be, and those before
    /// them up to which this is so: they are read next. Those that are older than
    /// these come then.
    pub(super) fn newest(
        &mut self,
        connection: &Connection,
        rows: Rows,
    ) -> Result<Option<Rows>, Failure> {
        let Some(stretches) = &self.stretches else {
            return Ok(None);
        };
        let at = stretches.partition_point(|it| it.first >= rows.end);
        let Some(stretch) = stretches.get(at) else {
            return Ok(None);
        };
        let (last, expected) = match rows.level {
            Level::Samples => (stretch.last, Expected::In(at)),
            // What a row is the sum of may lie in several stretches.
            Level::Minutes | Level::Hours => {
                let last = row_of(connection, rows.level, stretch.last)?;
                (last, Expected::Named)
            }
        };
        self.expected = expected;
        let first = stretch.first.max(rows.first);
        let end = last.saturating_add(1).min(rows.end);
        Ok((first < end).then_some(Rows { first, end, ..rows }))
    }
}

/// The samples that tell of each run that is wanted.
fn of_runs(connection: &Connection, scope: &Scope<'_>) -> Result<Vec<Stretch>, Failure> {
    let mut found = Vec::new();
    each_named_run(connection, scope, |run| {
        let (first, last) = run.samples()?;
        found.push(Stretch::new(first, last, Some(run.id()?)));
        Ok(())
    })?;
    Ok(found)
}

/// The samples of the hours in which a device was there that is wanted, and those
/// that are in no hour.
fn of_devices(connection: &Connection, scope: &Scope<'_>) -> Result<Vec<Stretch>, Failure> {
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
            found.push(Stretch::new(first, last, None));
        }
        first = last.saturating_add(1);
    }
    found.push(Stretch::new(first, i64::MAX, None));
    Ok(found)
}

/// Stretches that do not touch, the newest first.
fn joined(mut found: Vec<Stretch>) -> Vec<Stretch> {
    found.sort_unstable_by_key(|it| (it.first, it.last));
    let mut joined: Vec<Stretch> = Vec::new();
    for stretch in found {
        match joined.last_mut() {
            Some(before) if stretch.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(stretch.last);
                before.runs.extend(stretch.runs);
            }
            Some(_) | None => joined.push(stretch),
        }
    }
    for stretch in &mut joined {
        stretch.runs.sort_unstable();
    }
    joined.reverse();
    joined
}

impl Stretch {
    fn new(first: i64, last: i64, run: Option<i64>) -> Self {
        Self {
            first,
            last,
            runs: run.into_iter().collect(),
        }
    }
}
