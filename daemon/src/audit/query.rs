//! Answers questions about the past, each bounded in rows, bytes and time.

mod actions;

mod buckets;

mod filter;

mod page;

mod past_use;

mod range;

mod summary;

mod verdicts;

mod wanted;

mod whom;

pub(super) use actions::{actions, who_acted};
pub(crate) use buckets::buckets;
pub(super) use page::page;
pub(super) use past_use::past_use;
pub(crate) use past_use::{DeviceProcess, PastUse};
pub(super) use summary::summary;
pub(crate) use verdicts::Verdicts;
pub(super) use verdicts::verdicts;
pub(crate) use whom::{Chosen, Whom};

use gpukill_proto::refusal::Refusal;
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// The longest one page may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 10_000;

/// Asks the file, for so long at most.
///
/// # Errors
/// When the question makes no sense, the store fails, or it takes too long.
pub(super) fn within_time<T>(
    connection: &mut Connection,
    ask: impl FnOnce(&Connection, Deadline) -> Result<T, Failure>,
) -> Result<T, Refusal> {
    within(PATIENCE, connection, ask)
}

/// As [`within_time`], for as long as this.
///
/// # Errors
/// As [`within_time`].
pub(super) fn within<T>(
    patience: Duration,
    connection: &mut Connection,
    ask: impl FnOnce(&Connection, Deadline) -> Result<T, Failure>,
) -> Result<T, Refusal> {
    let deadline = Deadline(Instant::now() + patience);
    let watch = connection.progress_handler(STEPS, Some(move || deadline.is_over()));
    let result = watch
        .map_err(Failure::Store)
        .and_then(|()| ask(connection, deadline));
    // Without this the deadline would hold for the next question too.
    let _ = connection.progress_handler(0, None::<fn() -> bool>);
    result.map_err(|failure| match failure {
        Failure::Asked(refusal) => refusal,
        Failure::Store(error)
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) =>
        {
            Refusal::TooSlow("reading the history".into())
        }
        Failure::Store(error) => Refusal::Unavailable(format!("the store cannot be read: {error}")),
    })
}

/// Until when an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    fn is_over(self) -> bool {
        Instant::now() > self.0
    }

    /// # Errors
    /// When it is over.
    pub(super) fn check(self) -> Result<(), Failure> {
        if self.is_over() {
            let what = Refusal::TooSlow("reading the history".into());
            return Err(Failure::Asked(what));
        }
        Ok(())
    }
}

pub(crate) enum Failure {
    Asked(Refusal),
    Store(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}
