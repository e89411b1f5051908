//! Queries of [`Store`] about past use, actions, verdicts and timelines.

use super::database::{AUDIT, OpenDatabase, SAMPLES, open_for_reading};
use super::query::{self, ActionFilter, PastRights, VerdictPage};
use super::{DeviceProcess, PastUse, ReaderCommand, Store, findings, reader};
use chrono::Local;
use gpukill_policy::guard::sample::GuardSample;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditSeries, RunPage, RunQuery, SeriesQuery, TimelinePage,
    TimelineQuery,
};
use gpukill_proto::guard::ViolationQuery;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::transport::MAX_DEADLINE;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
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

    /// Returns one page of runs. `may_read` as in [`Store::summary`]. Without the record of actions
    /// there is no page: an archive would keep for good that an ended run had exited.
    pub(crate) async fn run_page(
        &self,
        query: RunQuery,
        may_read: impl Fn(Option<u32>, Option<u32>) -> bool + Send + 'static,
    ) -> Result<RunPage, Refusal> {
        let now = Timestamp::from(SystemTime::now());
        let runs = self.run_query(ReaderCommand::Samples, move |file| {
            query::unresolved_runs(file, &query, &may_read, now)
        });
        let runs = runs.await?;
        if !runs.need_record() {
            return Ok(runs.page);
        }
        self.run_query(ReaderCommand::Audit, move |file| {
            query::resolve_ends(file, runs)
        })
        .await
    }

    /// Returns usage over time. `may_read` as in [`Store::summary`].
    pub(crate) async fn series(
        &self,
        query: SeriesQuery,
        may_read: impl Fn(Option<u32>, Option<u32>) -> bool + Send + 'static,
    ) -> Result<AuditSeries, Refusal> {
        self.run_query(ReaderCommand::Samples, move |file| {
            query::series(file, &query, &may_read)
        })
        .await
    }

    /// Returns one page of actions and events that match `filter`. `may_read` decides whether the
    /// caller may see the request, plan and outcome of a user's actions.
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
    pub(crate) async fn acting_uids(&self) -> Result<Vec<u32>, Refusal> {
        self.run_query(ReaderCommand::Audit, query::acting_uids)
            .await
    }

    /// Those of `uids` that had this name, and no other one, whenever they used a device.
    pub(crate) async fn former_uids(
        &self,
        name: String,
        uids: Vec<u32>,
    ) -> Result<Vec<u32>, Refusal> {
        self.run_query(ReaderCommand::Samples, move |file| {
            query::former_uids(file, &name, &uids)
        })
        .await
    }

    /// Returns one page of a timeline. `uids` are the users that the user of the query names.
    pub(crate) async fn timeline(
        &self,
        query: TimelineQuery,
        uids: BTreeSet<u32>,
        rights: PastRights,
    ) -> Result<TimelinePage, Refusal> {
        let (query, rights) = (Arc::new(query), Arc::new(rights));
        let (asked, allowed) = (Arc::clone(&query), Arc::clone(&rights));
        let now = Timestamp::from(SystemTime::now());
        let samples = self.run_query(ReaderCommand::Samples, move |file| {
            query::timeline_samples(file, &asked, uids, &allowed, now)
        });
        let samples = samples.await?;
        self.run_query(ReaderCommand::Audit, move |file| {
            query::timeline_page(file, &query, samples, &rights)
        })
        .await
    }

    /// Returns one page of the guard's decisions.
    pub(crate) async fn verdict_page(&self, query: ViolationQuery) -> Result<VerdictPage, Refusal> {
        self.run_query(ReaderCommand::Audit, move |file| {
            query::verdict_page(file, &query)
        })
        .await
    }

    /// The rogue findings since this moment, newest first, of one boot if given. Opens its own
    /// connection and waits for the disk.
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
    pub(crate) fn guard_samples(
        &self,
        span: (Timestamp, Timestamp),
        visit: &mut dyn FnMut(GuardSample, bool) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        StoredHistory::open(&self.directory)?.guard_samples(span, visit)
    }
}

pub(crate) struct StoredHistory(OpenDatabase);

impl StoredHistory {
    /// Opens the store in this directory, with every file that reading needs.
    pub(crate) fn open(directory: &Path) -> Result<Self, Refusal> {
        let opened = open_for_reading(directory, &SAMPLES);
        let opened = opened.map_err(|fault| Refusal::Unavailable(fault.why))?;
        Ok(Self(opened))
    }

    /// See [`Store::guard_samples`].
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

#[cfg(test)]
mod tests {
    use super::super::database::open;
    use super::*;
    use gpukill_proto::audit::{AuditFilter, RunExtent, RunUnit};
    use std::path::PathBuf;
    use std::sync::mpsc::sync_channel;

    /// A run that an action ended, from second 1 to second 2.
    const RUN: &str = "
        INSERT INTO device (id, uuid, gpu_index) VALUES (1, 'GPU-a', 0);
        INSERT INTO process (id, boot, pid, start_ticks) VALUES (1, 'boot', 11, 1);
        INSERT INTO run (process, device, instance, first_at, last_at, first_sample, last_sample,
            ended_at, ending, action) VALUES (1, 1, '', 1000, 2000, 1, 1, 2000, 'killed', 7);";

    #[test]
    fn runs_are_refused_while_their_ends_cannot_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut samples = open(directory.path(), &SAMPLES).unwrap().connection;
        samples.execute_batch(RUN).unwrap();
        let (commands, _received) = sync_channel(1);
        let (queries, asked) = sync_channel(1);
        let store = Store {
            commands,
            queries,
            queue: Arc::default(),
            status: Arc::default(),
            faults: Arc::default(),
            counters: crate::store::Counters::default(),
            directory: Arc::new(PathBuf::new()),
            copy_permits: Arc::new(tokio::sync::Semaphore::new(1)),
        };
        let refused = Refusal::TooSlow("reading the history".into());
        let refusal = refused.clone();
        let reader = std::thread::spawn(move || {
            let mut of_record = 0;
            while let Ok(command) = asked.recv() {
                match command {
                    ReaderCommand::Samples(query) => query.answer(Ok(&mut samples)),
                    ReaderCommand::Audit(query) => {
                        of_record += 1;
                        query.answer(Err(refusal.clone()))
                    }
                    ReaderCommand::Close(_) => break,
                };
            }
            of_record
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let runs_until = |until| {
            let query = RunQuery {
                filter: AuditFilter::for_period(Timestamp(0), Timestamp(until)),
                unit: RunUnit::Job,
                extent: RunExtent::Whole,
                before: None,
                limit: 10,
            };
            let page = runtime.block_on(store.run_page(query, |_, _| true));
            page.map(|page| page.runs.len())
        };
        assert_eq!(runs_until(3_000), Err(refused));
        // Without a run that ended, the record is not read.
        assert_eq!(runs_until(1_000), Ok(0));
        drop(store);
        assert_eq!(reader.join().unwrap(), 1);
    }
}
