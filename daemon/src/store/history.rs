//! Queries of [`Store`] about past use, actions and verdicts.

use super::database::{AUDIT, OpenDatabase, SAMPLES, open_for_reading};
use super::query::{self, ActionFilter, VerdictPage};
use super::{DeviceProcess, PastUse, ReaderCommand, Store, findings, reader};
use chrono::Local;
use gpukill_policy::guard::sample::GuardSample;
use gpukill_proto::audit::{ActionPage, ActionQuery};
use gpukill_proto::guard::ViolationQuery;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::transport::MAX_DEADLINE;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot;

/// Receives the answer to [`Store::past_use`].
pub(crate) type PastUseReceiver =
    oneshot::Receiver<Result<BTreeMap<DeviceProcess, PastUse>, Refusal>>;

impl Store {
    /// Asks for the first and last use of these devices by these processes, without waiting.
    /// Returns `None` if too many queries wait.
    pub(crate) fn past_use(
        &self,
        boot: String,
        wanted: Vec<DeviceProcess>,
    ) -> Option<PastUseReceiver> {
        let (answer, answered) = oneshot::channel();
        let ask = move |file: &mut rusqlite::Connection| {
            query::run_query(file, |file, deadline| {
                query::past_use(file, &boot, &wanted, deadline)
            })
        };
        let question = ReaderCommand::Samples(Box::new(reader::PendingQuery { run: ask, answer }));
        self.queries.try_send(question).ok().map(|()| answered)
    }

    /// Returns one page of actions and events that match `filter`. `may_read` decides whether the
    /// caller may see the request, plan and outcome of a user's actions.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) async fn action_page(
        &self,
        query: ActionQuery,
        filter: ActionFilter,
        may_read: impl Fn(Option<u32>) -> bool + Send + 'static,
    ) -> Result<ActionPage, Refusal> {
        self.run_query(ReaderCommand::Audit, move |file| {
            query::action_page(file, &query, &filter, &may_read)
        })
        .await
    }

    /// The users with a recorded action or event, up to a limit.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) async fn acting_uids(&self) -> Result<Vec<u32>, Refusal> {
        self.run_query(ReaderCommand::Audit, query::acting_uids)
            .await
    }

    /// Returns one page of the guard's decisions.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) async fn verdict_page(&self, query: ViolationQuery) -> Result<VerdictPage, Refusal> {
        self.run_query(ReaderCommand::Audit, move |file| {
            query::verdict_page(file, &query)
        })
        .await
    }

    /// The rogue findings since this moment, newest first, of one boot if given. Opens its own
    /// connection and waits for the disk.
    ///
    /// # Errors
    /// When the record cannot be read, or reading takes too long.
    pub(crate) fn findings_since(
        &self,
        since: Timestamp,
        boot: Option<&str>,
    ) -> Result<Vec<RogueFinding>, Refusal> {
        let opened = open_for_reading(&self.directory, &AUDIT);
        let mut opened = opened.map_err(|fault| Refusal::Unavailable(fault.why))?;
        query::run_query(&mut opened.connection, |file, deadline| {
            findings::read_since(file, since, boot, deadline)
        })
    }

    /// Reads the samples of this time span as rules see them, oldest first, and passes each to
    /// `visit` with whether it is a sample (not a minute or an hour). Opens its own connection, so
    /// that other queries do not wait, and waits for the disk. Stops early when `visit` breaks.
    ///
    /// # Errors
    /// When the store cannot be read, or reading takes too long.
    pub(crate) fn guard_samples(
        &self,
        span: (Timestamp, Timestamp),
        visit: &mut dyn FnMut(GuardSample, bool) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        StoredHistory::open(&self.directory)?.guard_samples(span, visit)
    }
}

/// The stored history, open for reading.
pub(crate) struct StoredHistory(OpenDatabase);

impl StoredHistory {
    /// Opens the store in this directory, with every file that reading needs.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn open(directory: &Path) -> Result<Self, Refusal> {
        let opened = open_for_reading(directory, &SAMPLES);
        let opened = opened.map_err(|fault| Refusal::Unavailable(fault.why))?;
        Ok(Self(opened))
    }

    /// See [`Store::guard_samples`].
    ///
    /// # Errors
    /// When the store cannot be read, or reading takes too long.
    pub(crate) fn guard_samples(
        &mut self,
        span: (Timestamp, Timestamp),
        visit: &mut dyn FnMut(GuardSample, bool) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        query::run_query_with_timeout(REPLAY_TIMEOUT, &mut self.0.connection, |file, deadline| {
            query::guard_samples(file, span, &Local, deadline, visit)
        })
    }
}

/// The longest that reading the history for rules may take. A month of a large host takes some
/// seconds, on a busy host minutes. The caller waits for the result, and the work ends when the
/// caller goes away.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(600);

// The answer must come before the deadline of the call.
const _: () = assert!(REPLAY_TIMEOUT.as_secs() < MAX_DEADLINE.as_secs());
