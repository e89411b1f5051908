//! Questions about the record of what was done.

use super::database::{AUDIT, Opened, SAMPLES, open_for_reading};
use super::query::{self, Verdicts, Whom};
use super::{DeviceProcess, Inquiry, PastUse, Store, findings, reader};
use chrono::Local;
use gpukill_policy::guard::bucket::Bucket;
use gpukill_proto::audit::{ActionPage, ActionQuery};
use gpukill_proto::guard::ViolationQuery;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::Finding;
use gpukill_proto::transport::MAX_DEADLINE;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot;

/// Where the answer to [`Store::past_use`] comes.
pub(crate) type PastUses = oneshot::Receiver<Result<BTreeMap<DeviceProcess, PastUse>, Refusal>>;

impl Store {
    /// Asks since when these processes have used these devices, and when they last did,
    /// without waiting; `None` where too many questions wait already.
    pub(crate) fn past_use(&self, boot: String, wanted: Vec<DeviceProcess>) -> Option<PastUses> {
        let (answer, answered) = oneshot::channel();
        let ask = move |file: &mut rusqlite::Connection| {
            query::within_time(file, |file, deadline| {
                query::past_use(file, &boot, &wanted, deadline)
            })
        };
        let question = Inquiry::Samples(Box::new(reader::Question { ask, answer }));
        self.questions.try_send(question).ok().map(|()| answered)
    }

    /// One page of what was done, by and to `whom`. `may_read` says of whose acts the
    /// asker may see what was asked for, planned and came of it.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn actions(
        &self,
        query: ActionQuery,
        whom: Whom,
        may_read: impl Fn(Option<u32>) -> bool + Send + 'static,
    ) -> Result<ActionPage, Refusal> {
        self.ask(Inquiry::Audit, move |file| {
            query::actions(file, &query, &whom, &may_read)
        })
        .await
    }

    /// Everybody who asked for something that is recorded; many are cut.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn who_acted(&self) -> Result<Vec<u32>, Refusal> {
        self.ask(Inquiry::Audit, query::who_acted).await
    }

    /// One page of what the guard decided.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn verdicts(&self, query: ViolationQuery) -> Result<Verdicts, Refusal> {
        self.ask(Inquiry::Audit, move |file| query::verdicts(file, &query))
            .await
    }

    /// Who was found to be up to no good from this moment on, the newest first; of this
    /// boot alone where one is named. Over a connection of its own. Waits for the disk.
    ///
    /// # Errors
    /// When the record cannot be read, or it takes too long.
    pub(crate) fn found_since(
        &self,
        since: Timestamp,
        boot: Option<&str>,
    ) -> Result<Vec<Finding>, Refusal> {
        let opened = open_for_reading(&self.directory, &AUDIT);
        let mut opened = opened.map_err(|fault| Refusal::Unavailable(fault.why))?;
        query::within_time(&mut opened.connection, |file, deadline| {
            findings::since(file, since, boot, deadline)
        })
    }

    /// Tells of the past as rules see it, the oldest first: each stretch that began in
    /// this time, and whether it is a sample. Over a connection of its own, so that it
    /// holds up nobody's question. Ends early where `tell` has enough. Waits for the
    /// disk.
    ///
    /// # Errors
    /// When the store cannot be read, or it takes too long.
    pub(crate) fn buckets(
        &self,
        span: (Timestamp, Timestamp),
        tell: &mut dyn FnMut(Bucket, bool) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        Past::open(&self.directory)?.buckets(span, tell)
    }
}

/// What the store keeps of the past, open for reading.
pub(crate) struct Past(Opened);

impl Past {
    /// Opens the store in this directory, with every file that reading it needs.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(directory: &Path) -> Result<Self, Refusal> {
        let opened = open_for_reading(directory, &SAMPLES);
        let opened = opened.map_err(|fault| Refusal::Unavailable(fault.why))?;
        Ok(Self(opened))
    }

    /// As [`Store::buckets`].
    ///
    /// # Errors
    /// When the store cannot be read, or it takes too long.
    pub(crate) fn buckets(
        &mut self,
        span: (Timestamp, Timestamp),
        tell: &mut dyn FnMut(Bucket, bool) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        query::within(REPLAY_PATIENCE, &mut self.0.connection, |file, deadline| {
            query::buckets(file, span, &Local, deadline, tell)
        })
    }
}

/// The longest that reading the past for rules may take: a month of a large box takes
/// some seconds, and of a box that is busy with other things minutes. Whoever asked
/// waits for it, and it ends when they go.
const REPLAY_PATIENCE: Duration = Duration::from_secs(600);

// Whoever asked hears of it.
const _: () = assert!(REPLAY_PATIENCE.as_secs() < MAX_DEADLINE.as_secs());
