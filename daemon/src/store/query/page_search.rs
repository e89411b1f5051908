//! Finds the rows that a page needs without reading all rows.

use super::super::blob::BlobReader;
use super::QueryError;
use super::filter::{
    MayReadCommand, QueryScope, RunColumns, StoredRun, for_each_run, for_each_selected_run,
};
use super::range::{IdRange, RollupLevel, row_containing};
use gpukill_proto::audit::AuditFilter;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use rusqlite::Connection;
use std::collections::HashMap;

/// The selection of a page, with what is known about where it matches.
pub(super) struct PageSearch<'a> {
    pub(super) scope: QueryScope<'a>,
    /// The spans of samples that may match, newest first. `None` until they are looked up.
    spans: Option<Vec<SampleSpan>>,
    /// The ids of the runs of all spans, sorted. `None` if unknown.
    named_runs: Option<Vec<i64>>,
    /// The runs that can match in the rows being read.
    expected: CandidateRuns,
    /// The runs looked up so far; `None` for a run that does not match.
    runs: HashMap<i64, Option<Box<StoredRun>>>,
}

/// Which runs can match in some rows.
#[derive(Debug, Clone, Copy)]
enum CandidateRuns {
    /// Unknown.
    Unknown,
    /// The runs of all spans.
    AllSpans,
    /// The runs of the span at this index.
    Span(usize),
}

/// A span of samples that may match.
#[derive(Debug, PartialEq, Eq)]
struct SampleSpan {
    first: i64,
    last: i64,
    /// The matching runs in the span, sorted by id; empty if devices are selected.
    runs: Vec<i64>,
}

/// The most looked-up runs that are kept: several times those of a sample.
const MAX_CACHED_RUNS: usize = 1 << 14;

impl<'a> PageSearch<'a> {
    /// The search for what `filter` selects. `may_read` as in [`QueryScope::from_filter`].
    pub(super) fn from_filter(
        connection: &Connection,
        filter: &'a AuditFilter,
        may_read: MayReadCommand<'a>,
    ) -> Result<Self, QueryError> {
        let scope = QueryScope::from_filter(connection, filter, may_read)?;
        Ok(Self {
            spans: scope
                .selects_all()
                .then(|| vec![SampleSpan::new(0, i64::MAX, None)]),
            named_runs: None,
            expected: CandidateRuns::Unknown,
            scope,
            runs: HashMap::new(),
        })
    }

    pub(super) fn matches(
        &mut self,
        connection: &Connection,
        run: i64,
    ) -> Result<bool, QueryError> {
        let expected = self.candidates();
        if expected.is_some_and(|runs| runs.binary_search(&run).is_err()) {
            return Ok(false);
        }
        if let Some(known) = self.runs.get(&run) {
            return Ok(known.is_some());
        }
        let mut stored = None;
        for_each_run(
            connection,
            &self.scope,
            RunColumns::Process,
            (run, run),
            |row| {
                stored = Some(Box::new(row.to_stored()?));
                Ok(())
            },
        )?;
        let is_wanted = stored.is_some();
        self.runs.insert(run, stored);
        Ok(is_wanted)
    }

    /// Whether no run with this id or a higher one matches.
    pub(super) fn is_past(&self, run: i64) -> bool {
        let expected = self.candidates();
        expected.is_some_and(|runs| runs.last().is_none_or(|last| *last < run))
    }

    fn candidates(&self) -> Option<&[i64]> {
        match self.expected {
            CandidateRuns::Unknown => None,
            CandidateRuns::AllSpans => self.named_runs.as_deref(),
            CandidateRuns::Span(at) => {
                let stretch = self.spans.as_ref()?.get(at)?;
                self.named_runs.is_some().then_some(stretch.runs.as_slice())
            }
        }
    }

    /// A run that was looked up, if it matches.
    pub(super) fn cached_run(&self, run: i64) -> Option<&StoredRun> {
        self.runs.get(&run)?.as_deref()
    }

    /// Drops the looked-up runs if there are many.
    pub(super) fn trim_cache(&mut self) {
        if self.runs.len() >= MAX_CACHED_RUNS {
            self.runs.clear();
        }
    }

    /// Whether the matching spans were looked up.
    pub(super) const fn is_located(&self) -> bool {
        self.spans.is_some()
    }

    /// Looks up the spans of samples that may match.
    pub(super) fn locate(&mut self, connection: &Connection) -> Result<(), QueryError> {
        let found = if self.scope.selects_processes {
            run_spans(connection, &self.scope)?
        } else {
            device_spans(connection, &self.scope)?
        };
        let stretches = merge_spans(found);
        if self.scope.selects_processes {
            let runs = stretches.iter().flat_map(|it| &it.runs).copied();
            let mut runs: Vec<i64> = runs.collect();
            runs.sort_indirect();
            self.named_runs = Some(runs);
        }
        self.spans = Some(stretches);
        Ok(())
    }

    /// The newest of these rows that may match, up to the end of their span. They are read next;
    /// the following call returns older ones.
    pub(super) fn next_rows(
        &mut self,
        connection: &Connection,
        rows: IdRange,
    ) -> Result<Option<IdRange>, QueryError> {
        let Some(stretches) = &self.spans else {
            return Ok(None);
        };
        let at = stretches.partition_point(|it| it.first >= rows.end);
        let Some(stretch) = stretches.get(at) else {
            return Ok(None);
        };
        let (last, expected) = match rows.level {
            RollupLevel::Samples => (stretch.last, CandidateRuns::Span(at)),
            // A minute or an hour may lie in several spans.
            RollupLevel::Minutes | RollupLevel::Hours => {
                let last = row_containing(connection, rows.level, stretch.last)?;
                (last, CandidateRuns::AllSpans)
            }
        };
        self.expected = expected;
        let first = stretch.first.max(rows.first);
        let end = last.saturating_add(1).min(rows.end);
        Ok((first < end).then_some(IdRange { first, end, ..rows }))
    }
}

/// The samples of each matching run.
fn run_spans(
    connection: &Connection,
    scope: &QueryScope<'_>,
) -> Result<Vec<SampleSpan>, QueryError> {
    let mut spans = Vec::new();
    for_each_selected_run(connection, scope, RunColumns::Process, |run| {
        let (first, last) = run.sample_range()?;
        spans.push(SampleSpan::new(first, last, Some(run.id()?)));
        Ok(())
    })?;
    Ok(spans)
}

/// The samples of the hours that contain a selected device, and the samples that are in no hour.
fn device_spans(
    connection: &Connection,
    scope: &QueryScope<'_>,
) -> Result<Vec<SampleSpan>, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, CASE WHEN at >= ?1 AND at < ?2 THEN usage END FROM hour ORDER BY id",
    )?;
    let since = RollupLevel::Hours.interval_start(scope.filter.since.0);
    let mut rows = statement.query([since, scope.filter.until.0])?;
    let (mut found, mut first) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let last: i64 = row.get(0)?;
        let blob = row.get_ref(1)?.as_blob_or_null().ok().flatten();
        let devices =
            blob.and_then(|blob| BlobReader::open(blob, Timestamp(0)).ok()?.devices().ok());
        let is_there = devices
            .is_some_and(|(devices, _)| devices.iter().any(|(id, _)| scope.devices.contains(id)));
        // What precedes the first hour is unknown.
        if is_there || first == 0 {
            found.push(SampleSpan::new(first, last, None));
        }
        first = last.saturating_add(1);
    }
    found.push(SampleSpan::new(first, i64::MAX, None));
    Ok(found)
}

/// Merges spans that overlap or touch; newest first.
fn merge_spans(mut spans: Vec<SampleSpan>) -> Vec<SampleSpan> {
    spans.sort_indirect_by_key(|it| (it.first, it.last));
    let mut joined: Vec<SampleSpan> = Vec::new();
    for stretch in spans {
        match joined.last_mut() {
            Some(before) if stretch.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(stretch.last);
                before.runs.extend(stretch.runs);
            }
            Some(_) | None => joined.push(stretch),
        }
    }
    for stretch in &mut joined {
        stretch.runs.sort_indirect();
    }
    joined.reverse();
    joined
}

impl SampleSpan {
    fn new(first: i64, last: i64, run: Option<i64>) -> Self {
        Self {
            first,
            last,
            runs: run.into_iter().collect(),
        }
    }
}
