//! The rows of an archive, from the calls that return them.

use super::super::{collect_pages, record_filter, request_samples};
use crate::archive::ArchiveKind;
use crate::args::RecordFilter;
use crate::connect::{Daemon, call};
use crate::exit::Error;
use crate::output::audit::history::TimeSpan;
use crate::settings::Settings;
use gpukill_proto::audit::{
    ActionQuery, ActionRecord, AuditRecord, AuditSubject, RunCursor, RunExtent, RunPage, RunQuery,
    RunRecord, RunUnit,
};
use gpukill_proto::units::Timestamp;

/// A call that returns rows of one or more kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowSource {
    Samples,
    Runs,
    Actions,
}

impl RowSource {
    pub(super) const ALL: [Self; 3] = [Self::Samples, Self::Runs, Self::Actions];

    /// The call that returns the rows of this kind.
    pub(super) const fn of_kind(kind: ArchiveKind) -> Self {
        match kind {
            ArchiveKind::Devices | ArchiveKind::Processes => Self::Samples,
            ArchiveKind::Actions => Self::Actions,
            ArchiveKind::Runs => Self::Runs,
        }
    }

    pub(super) fn kinds(self) -> Vec<ArchiveKind> {
        let all = ArchiveKind::ALL.into_iter();
        all.filter(|kind| Self::of_kind(*kind) == self).collect()
    }

    /// How long after the end of a day its last rows may be written, in seconds.
    pub(super) const fn close_delay_seconds(self) -> i64 {
        match self {
            // They are written in the order of time; a clock may be set back a little.
            Self::Samples => 600,
            // A kill waits ten minutes for each of its signals, and its outcome says how runs
            // ended. Repeats of a fault or a refusal are recorded up to an hour later, with the
            // time of the first one.
            Self::Runs | Self::Actions => 7_200,
        }
    }
}

pub(super) enum ArchiveRow {
    Record(AuditRecord),
    Action(ActionRecord),
    Run(RunRecord),
}

impl ArchiveRow {
    pub(super) const fn kind(&self) -> ArchiveKind {
        match self {
            Self::Record(record) => match record.subject {
                AuditSubject::Device { .. } => ArchiveKind::Devices,
                AuditSubject::Process { .. } => ArchiveKind::Processes,
            },
            Self::Action(_) => ArchiveKind::Actions,
            Self::Run(_) => ArchiveKind::Runs,
        }
    }

    /// The time that decides to which day it belongs.
    pub(super) const fn at(&self) -> Timestamp {
        match self {
            Self::Record(record) => record.at,
            Self::Action(action) => action.at,
            Self::Run(run) => run.from,
        }
    }
}

/// Whether the rows of a time span were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsRead {
    All,
    /// The daemon deleted samples of the time span between two pages, and some rows are missing.
    Changed,
}

type AddRow<'a> = &'a mut dyn FnMut(ArchiveRow) -> Result<(), Error>;

/// Calls `add` with each row of a time span, newest first.
pub(super) fn for_each_row(
    daemon: &Daemon,
    source: RowSource,
    span: TimeSpan,
    settings: &Settings,
    add: AddRow<'_>,
) -> Result<RowsRead, Error> {
    let mut rows_read = RowsRead::All;
    let remaining = match source {
        RowSource::Samples => {
            let filter = record_filter(&RecordFilter::default(), span)?;
            let mut first_rows = None;
            collect_pages(0, &mut |before, limit| {
                let page = request_samples(daemon, &filter, before, limit, settings)?;
                if *first_rows.get_or_insert_with(|| page.first_rows.clone()) != page.first_rows {
                    rows_read = RowsRead::Changed;
                    return Ok((0, None));
                }
                add_rows(page.records, ArchiveRow::Record, page.next, add)
            })
        }
        RowSource::Runs => collect_pages(0, &mut |before, limit| {
            let page = request_runs(daemon, span, before, limit, settings)?;
            add_rows(page.runs, ArchiveRow::Run, page.next, add)
        }),
        RowSource::Actions => collect_pages(0, &mut |before, limit| {
            let query = ActionQuery {
                since: span.since,
                until: span.until,
                before,
                limit,
                ..ActionQuery::default()
            };
            let page = call!(daemon, settings.request_timeout(), AuditActions { query })?;
            add_rows(page.records, ArchiveRow::Action, page.next, add)
        }),
    };
    remaining.map(|_| rows_read)
}

/// Adds the rows of a page. Returns their number and the cursor of the next page.
fn add_rows<R, C>(
    rows: Vec<R>,
    row: fn(R) -> ArchiveRow,
    next: Option<C>,
    add: AddRow<'_>,
) -> Result<(usize, Option<C>), Error> {
    let count = rows.len();
    rows.into_iter().map(row).try_for_each(add)?;
    Ok((count, next))
}

/// A page of the parts of runs within a time span.
fn request_runs(
    daemon: &Daemon,
    span: TimeSpan,
    before: Option<RunCursor>,
    limit: u32,
    settings: &Settings,
) -> Result<RunPage, Error> {
    let query = RunQuery {
        filter: record_filter(&RecordFilter::default(), span)?,
        unit: RunUnit::Job,
        extent: RunExtent::WithinPeriod,
        before,
        limit,
    };
    call!(daemon, settings.request_timeout(), AuditRuns { query })
}

/// The start of the oldest row of the store; `None` if there is none.
pub(super) fn recorded_since(
    daemon: &Daemon,
    settings: &Settings,
) -> Result<Option<Timestamp>, Error> {
    let no_time = TimeSpan {
        since: Timestamp(0),
        until: Timestamp(0),
    };
    Ok(request_runs(daemon, no_time, None, 1, settings)?.recorded_since)
}

/// The time of the sample of a time span that was recorded last.
pub(super) fn newest_sample(
    daemon: &Daemon,
    span: TimeSpan,
    settings: &Settings,
) -> Result<Option<Timestamp>, Error> {
    let filter = record_filter(&RecordFilter::default(), span)?;
    let page = request_samples(daemon, &filter, None, 1, settings)?;
    Ok(page.records.first().map(|record| record.at))
}
