//! Answers queries about the history, each bounded in rows, bytes and time.

mod actions;
mod filter;
mod gaps;
mod guard_samples;
mod page;
mod page_search;
mod past_use;
mod range;
mod runs;
#[cfg(test)]
mod sample_store;
mod series;
mod summary;
mod timeline;
mod verdicts;

pub(crate) use actions::{ActionFilter, SelectedDevices};
pub(super) use actions::{acting_uids, action_page, former_uids};
pub(crate) use guard_samples::guard_samples;
pub(super) use page::sample_page;
pub(super) use past_use::past_use;
pub(crate) use past_use::{DeviceProcess, PastUse};
pub(super) use runs::{resolve_ends, unresolved_runs};
pub(super) use series::series;
pub(super) use summary::summary;
pub(crate) use timeline::PastRights;
pub(super) use timeline::{timeline_page, timeline_samples};
pub(crate) use verdicts::VerdictPage;
pub(super) use verdicts::verdict_page;

use gpukill_proto::refusal::Refusal;
use gpukill_proto::transport::codec::PageRoom;
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// The longest time that one page may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// The most records of one page.
const MAX_RECORDS: u32 = 1_000;

/// The steps of SQLite's virtual machine between two looks at the clock.
const PROGRESS_STEPS: i32 = 10_000;

/// Runs a query with the default time limit.
pub(super) fn run_query<T>(
    connection: &mut Connection,
    ask: impl FnOnce(&Connection, Deadline) -> Result<T, QueryError>,
) -> Result<T, Refusal> {
    run_query_with_timeout(QUERY_TIMEOUT, connection, ask)
}

/// Like [`run_query`], with this time limit.
pub(super) fn run_query_with_timeout<T>(
    timeout: Duration,
    connection: &mut Connection,
    ask: impl FnOnce(&Connection, Deadline) -> Result<T, QueryError>,
) -> Result<T, Refusal> {
    let deadline = Deadline(Instant::now() + timeout);
    let watch = connection.progress_handler(PROGRESS_STEPS, Some(move || deadline.has_passed()));
    let result = watch
        .map_err(QueryError::Store)
        .and_then(|()| ask(connection, deadline));
    // Otherwise the deadline would hold for the next query too.
    let _ = connection.progress_handler(0, None::<fn() -> bool>);
    result.map_err(|failure| match failure {
        QueryError::Refused(refusal) => refusal,
        QueryError::Store(error)
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) =>
        {
            Refusal::TooSlow("reading the history".into())
        }
        QueryError::Store(error) => {
            Refusal::Unavailable(format!("the store cannot be read: {error}"))
        }
    })
}

/// The most records of a page for which a query allows `limit`.
///
/// # Errors
/// When the limit is 0: an empty page could not say where the next one starts.
fn page_limit(limit: u32) -> Result<usize, QueryError> {
    match limit.min(MAX_RECORDS) {
        0 => Err(QueryError::Refused(Refusal::Invalid(
            "the limit must be greater than 0".into(),
        ))),
        limit => Ok(limit as usize),
    }
}

/// The room of a page of at most `limit` records, and of this many bytes.
fn page_room(limit: u32, max_bytes: u64) -> Result<PageRoom, QueryError> {
    Ok(PageRoom::new(page_limit(limit)?, max_bytes))
}

/// The end of the time limit of a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    fn has_passed(self) -> bool {
        Instant::now() > self.0
    }

    /// # Errors
    /// When the deadline has passed.
    pub(super) fn check(self) -> Result<(), QueryError> {
        if self.has_passed() {
            let what = Refusal::TooSlow("reading the history".into());
            return Err(QueryError::Refused(what));
        }
        Ok(())
    }
}

pub(crate) enum QueryError {
    Refused(Refusal),
    Store(rusqlite::Error),
}

impl From<rusqlite::Error> for QueryError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}
