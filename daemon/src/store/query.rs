//! Answers queries about the history, each bounded in rows, bytes and time.

mod actions;
mod filter;
mod guard_samples;
mod page;
mod page_search;
mod past_use;
mod range;
mod summary;
mod verdicts;

pub(crate) use actions::{ActionFilter, SelectedDevices};
pub(super) use actions::{acting_uids, action_page};
pub(crate) use guard_samples::guard_samples;
pub(super) use page::sample_page;
pub(super) use past_use::past_use;
pub(crate) use past_use::{DeviceProcess, PastUse};
pub(super) use summary::summary;
pub(crate) use verdicts::VerdictPage;
pub(super) use verdicts::verdict_page;

use gpukill_proto::refusal::Refusal;
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// The longest time that one page may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// The steps of SQLite's virtual machine between two looks at the clock.
const PROGRESS_STEPS: i32 = 10_000;

/// Runs a query with the default time limit.
///
/// # Errors
/// When the query is invalid, the store fails, or the query takes too long.
pub(super) fn run_query<T>(
    connection: &mut Connection,
    ask: impl FnOnce(&Connection, Deadline) -> Result<T, QueryError>,
) -> Result<T, Refusal> {
    run_query_with_timeout(QUERY_TIMEOUT, connection, ask)
}

/// Like [`run_query`], with this time limit.
///
/// # Errors
/// As [`run_query`].
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
