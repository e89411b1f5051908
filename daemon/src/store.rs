//! The store: samples of devices and processes in `samples.db`, the record of actions and events in
//! `audit.db`. One thread alone writes both files; callers hand data over and go on.

mod actions;
mod backup;
pub(crate) mod bench_api;
mod blob;
mod byte_allowance;
mod clock_guard;
mod copy;
mod counters;
mod database;
mod disk_reserve;
mod disk_space;
mod error;
mod event_row;
mod fault_log;
mod findings;
mod history;
mod kill_allowance;
mod killed_runs;
mod open_action;
mod quarantine;
mod query;
mod queue;
mod reader;
mod refusals;
mod restore;
mod retention;
mod rollup;
mod rule_facts;
mod sample;
mod sample_writer;
mod sql_values;
#[cfg(test)]
pub(crate) mod test_rows;
mod truncate;
mod verdict_allowance;
mod verdicts;
mod writer;

pub(crate) use backup::backup_action as asked_for_a_copy;
pub(crate) use bench_api::{BenchRecorder, BenchStore};
pub(crate) use copy::StoreCopy;
pub(crate) use counters::Counters;
pub(crate) use fault_log::FaultChange;
pub(crate) use history::{PastUseReceiver, StoredHistory};
pub(crate) use kill_allowance::KillShare;
pub(crate) use query::{ActionFilter, DeviceProcess, PastRights, PastUse, SelectedDevices};
pub(crate) use restore::PreparedRestore;
pub(crate) use retention::Retention;
pub(crate) use sample::{
    DepartedProcess, Departure, GroupNames, JobAccounts, RogueSuspicions, Sample, process_facts,
};

use crate::fault::FaultCause;
use crate::log_events::{EventSubject, event};
use actions::ActionEnd;
use counters::counted_kind;
use fault_log::FaultLog;
use gpukill_policy::access::LimitGroup;
use gpukill_proto::audit::{AuditFilter, AuditPage, AuditQuery, AuditSummary};
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::model::{DeviceId, GpuEvent};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::status::StoreReport;
use gpukill_proto::units::{Bytes, Timestamp};
use open_action::ActionId;
pub(crate) use open_action::{Action, ActionKind, OpenAction};
use queue::{ActionIntent, ActionQueue};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;

/// Commands that may wait for the writing thread. Further samples are dropped.
const MAX_QUEUED_COMMANDS: usize = 64;

/// Queries that may wait for the reading thread. Further queries are refused.
const MAX_QUEUED_QUERIES: usize = 16;

/// How long [`Store::close`] waits for the last writes, and before that for the query that is being
/// answered.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// How long an event waits for space in the queue.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an action waits until its intent is recorded.
const INTENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The error after the store was closed.
const CLOSED: &str = "the store is closed";

/// A command for the writing thread.
enum WriterCommand {
    /// The action queue has entries.
    CheckQueue,
    Sample(Box<Sample>),
    Record(RecordedEvent),
    DeviceEvents(Vec<GpuEvent>),
    Faults(Vec<FaultChange>),
    Verdicts(Vec<GuardRecord>),
    Findings(Vec<RogueFinding>),
    SetRetention(Retention),
    /// Asks whether the wall clock can be trusted.
    CheckClock(oneshot::Sender<bool>),
    Prune(writer::RequestedPrune),
    Close(SyncSender<()>),
}

/// An event of the daemon or of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedEvent {
    /// The daemon started; holds its version.
    Started(&'static str),
    /// The daemon shut down in order.
    Stopped,
    /// The settings in force from now on, as JSON.
    Settings(String),
    /// The rules in force from now on: the rule set, its revision and its text.
    Rules {
        rule_set: RuleSetKind,
        revision: Option<String>,
        text: String,
    },
    /// A fault started or ended.
    Fault(FaultChange),
    /// A device event, and how often it happened at once.
    Device(GpuEvent, u64),
    /// A user quiesced the driver: the uid and the end of the quiesce.
    Quiesced(u32, Timestamp),
    /// A user ended a quiesce early: the uid.
    Resumed(u32),
    /// A user had a missing device forgotten: the uid and the device.
    Forgotten(u32, DeviceId),
    /// A corrupt file of the store was quarantined: its new name and the reason.
    Quarantined(String, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleSetKind {
    /// The rules of the guard.
    Guard,
    /// The rules for rogue verdicts.
    Rogues,
}

impl RuleSetKind {
    /// The event kind under which the rule set is recorded.
    const fn event_kind(self) -> &'static str {
        match self {
            Self::Guard => "rules",
            Self::Rogues => "rogue_rules",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Guard => "the guard's rules",
            Self::Rogues => "the rogue rules",
        }
    }

    pub(crate) const fn record_prefix(self) -> &'static str {
        match self {
            Self::Guard => "",
            Self::Rogues => "rogue: ",
        }
    }
}

/// A command for the reading thread.
enum ReaderCommand {
    Samples(Box<dyn StoreQuery>),
    Audit(Box<dyn StoreQuery>),
    Close(SyncSender<()>),
}

trait StoreQuery: Send {
    /// Answers the query from the file, or with the reason why the file cannot be read. Returns
    /// false when the file may no longer be the right one.
    fn answer(self: Box<Self>, file: Result<&mut Connection, Refusal>) -> bool;
}

/// The status of the store, shared between its threads and its callers.
#[derive(Debug, Default)]
struct StoreStatus {
    faults: Vec<FaultCause>,
    samples: Bytes,
    audit: Bytes,
    recorded_since: Option<Timestamp>,
    written_at: Option<Timestamp>,
    samples_written: u64,
    samples_dropped: u64,
    /// The files that a query could not read; the writer checks them.
    suspected: BTreeSet<&'static str>,
}

fn lock(shared: &Mutex<StoreStatus>) -> MutexGuard<'_, StoreStatus> {
    // No code panics while it holds this lock; even then the values would be consistent.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle to the store. Clones share the store.
#[derive(Clone)]
pub(crate) struct Store {
    commands: SyncSender<WriterCommand>,
    queries: SyncSender<ReaderCommand>,
    queue: Arc<Mutex<ActionQueue>>,
    status: Arc<Mutex<StoreStatus>>,
    faults: Arc<Mutex<FaultLog>>,
    counters: Counters,
    directory: Arc<PathBuf>,
    /// Allows one copy at a time.
    copy_permits: Arc<tokio::sync::Semaphore>,
}

impl Store {
    /// The directory of the store's files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What has happened since the daemon started.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Starts the store in `directory`. `boot` identifies this boot of the host; `recovered` says
    /// what was done for kills that an earlier run of the daemon left unfinished. A store that
    /// cannot be opened is a fault, not an error, and is retried.
    pub(crate) fn start(
        directory: PathBuf,
        boot: String,
        keep: Retention,
        recovered: Option<String>,
    ) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(MAX_QUEUED_COMMANDS);
        let (questions, asked) = sync_channel(MAX_QUEUED_QUERIES);
        let shared = Arc::new(Mutex::new(StoreStatus::default()));
        let inbox = Arc::new(Mutex::new(ActionQueue::default()));
        let store = Self {
            commands: orders,
            queries: questions,
            queue: Arc::clone(&inbox),
            status: Arc::clone(&shared),
            faults: Arc::default(),
            counters: Counters::default(),
            directory: Arc::new(directory.clone()),
            copy_permits: Arc::new(tokio::sync::Semaphore::new(1)),
        };
        let seen_by_reader = Arc::clone(&shared);
        copy::remove_unfinished_copy(&directory);
        // Before any thread opens a file. If this fails, the writer retries.
        if let Err(why) = restore::finish_restore(&directory) {
            tracing::error!(why, "a restore is not finished");
        }
        let writer = writer::Writer::new(directory.clone(), boot, keep, inbox, shared);
        let writer = writer.with_recovered_kills(recovered);
        let (opening, opened) = sync_channel(0);
        std::thread::Builder::new()
            .name("store-write".into())
            .spawn(move || writer.run(&received, opening))?;
        std::thread::Builder::new()
            .name("store-read".into())
            .spawn(move || reader::run(&directory, &asked, &opened, &seen_by_reader))?;
        Ok(store)
    }

    /// Queues a sample. If too many commands wait, the sample is dropped.
    pub(crate) fn record_sample(&self, sample: Sample) {
        match self
            .commands
            .try_send(WriterCommand::Sample(Box::new(sample)))
        {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                lock(&self.status).samples_dropped += 1
            }
        }
    }

    /// Records the guard's decisions on one sample, within the hourly allowance of each person.
    /// Returns true if they were queued.
    pub(crate) fn record_verdicts(&self, records: Vec<GuardRecord>) -> bool {
        self.counters.count_decisions(&records);
        self.commands
            .try_send(WriterCommand::Verdicts(records))
            .is_ok()
    }

    /// Records rogue findings. Returns true if they were queued.
    pub(crate) fn record_findings(&self, findings: Vec<RogueFinding>) -> bool {
        self.commands
            .try_send(WriterCommand::Findings(findings))
            .is_ok()
    }

    /// Records an event. Waits while the queue is full, but not forever: a hanging disk must not
    /// keep the daemon from stopping.
    pub(crate) fn record(&self, event: RecordedEvent) {
        if event == RecordedEvent::Stopped {
            self.record_pending_faults();
        }
        let deadline = Instant::now() + RECORD_TIMEOUT;
        if self
            .send_command(deadline, WriterCommand::Record(event))
            .is_err()
        {
            event!(NotRecorded; "the event queue is full: not recorded");
        }
    }

    /// Records and logs an action that is about to start. Returns when the record is safe on the
    /// disk, after two seconds at most; for threads that may block.
    ///
    /// An action reported here as not recorded may still appear in the record, if the disk was slow
    /// or SQLite reported an error for a successful commit: never as open, but with the word
    /// `unrecorded`.
    ///
    /// # Errors
    /// The reason why the action is not recorded. The caller then logs the outcome.
    pub(crate) fn record_intent(&self, action: Action) -> Result<OpenAction, String> {
        self.record_intent_about(action, EventSubject::default())
    }

    /// Like [`Store::record_intent`]; the log entry also names the subject of the action.
    pub(crate) fn record_intent_about(
        &self,
        action: Action,
        subject: EventSubject,
    ) -> Result<OpenAction, String> {
        self.record_intent_at(SystemTime::now().into(), action, subject)
    }

    /// Like [`Store::record_intent_about`], for a kill. Beyond the hourly allowance of its person
    /// the record has a short form of the plan and of the outcome; the log has both in full.
    pub(crate) fn record_kill_intent(
        &self,
        action: Action,
        subject: EventSubject,
        share: KillShare,
    ) -> Result<OpenAction, String> {
        self.record_limited_intent(SystemTime::now().into(), action, subject, Some(share))
    }

    /// Like [`Store::record_intent_about`], for an action that was requested at `at`.
    fn record_intent_at(
        &self,
        at: Timestamp,
        action: Action,
        subject: EventSubject,
    ) -> Result<OpenAction, String> {
        self.record_limited_intent(at, action, subject, None)
    }

    fn record_limited_intent(
        &self,
        at: Timestamp,
        action: Action,
        subject: EventSubject,
        share: Option<KillShare>,
    ) -> Result<OpenAction, String> {
        let mut limited = action.clone();
        if let Some(share) = &share {
            let mut inbox = queue::lock(&self.queue);
            let allowance = &mut inbox.kill_allowance;
            allowance.limit_action(&mut limited, share, Instant::now());
        }
        let recorded = self.send_intent(limited, at, INTENT_TIMEOUT);
        let counted_as = counted_kind(&action);
        let Action {
            kind,
            uid: caller_uid,
            request,
            plan,
        } = action;
        let (action, [pid, uid, gpu_uuid]) = (kind.name(), subject.fields());
        match &recorded {
            Ok(ActionId(id)) => {
                event!(
                    ActionStarted,
                    action_id = id,
                    action,
                    caller_uid,
                    request,
                    plan,
                    pid,
                    uid,
                    gpu_uuid
                );
            }
            Err(why) => {
                event!(
                    ActionUnrecorded,
                    action,
                    caller_uid,
                    request,
                    plan,
                    why,
                    pid,
                    uid,
                    gpu_uuid
                );
            }
        }
        recorded.map(|id| OpenAction::new(id, kind, counted_as, subject, share, self.clone()))
    }

    fn send_intent(
        &self,
        action: Action,
        at: Timestamp,
        timeout: Duration,
    ) -> Result<ActionId, String> {
        let action = Action {
            request: truncate::text(action.request, truncate::MAX_TEXT_BYTES),
            plan: truncate::json(action.plan, truncate::MAX_JSON_BYTES),
            ..action
        };
        let (answer, answered) = sync_channel(0);
        let intent = ActionIntent {
            action,
            at,
            deadline: Instant::now() + timeout,
            answer,
        };
        queue::lock(&self.queue).push_intent(intent)?;
        self.wake()?;
        answered
            .recv_timeout(timeout)
            .map_err(|_| "the store did not answer in time".to_owned())?
    }

    /// See [`OpenAction::settle`]. The first end of an action counts.
    fn settle(
        &self,
        id: ActionId,
        result: &'static str,
        outcome: String,
        share: Option<&KillShare>,
    ) {
        let ended = killed_runs::ended_processes(&outcome);
        let mut is_short = outcome.len() > truncate::MAX_JSON_BYTES;
        let mut outcome = truncate::json(outcome, truncate::MAX_JSON_BYTES);
        if let Some(share) = share {
            let mut inbox = queue::lock(&self.queue);
            let allowance = &mut inbox.kill_allowance;
            if !allowance.allows_outcome(&outcome, share, Instant::now()) {
                outcome.clone_from(&share.short);
                is_short = true;
            }
        }
        if is_short {
            outcome = killed_runs::add_ended_processes(outcome, &ended);
        }
        let end = ActionEnd {
            at: SystemTime::now().into(),
            result,
            ended,
            outcome: Some(outcome),
            why: None,
        };
        self.queue_end(id, end);
    }

    fn queue_end(&self, id: ActionId, end: ActionEnd) {
        queue::lock(&self.queue).push_end(id, end);
        if let Err(why) = self.wake() {
            let ActionId(id) = id;
            event!(NotRecorded, action_id = id, why; "the end of an action is not recorded");
        }
    }

    /// Records and logs an action that was refused, with the reason. Never waits. Repeats are
    /// recorded once a minute with their number; of very many different refusals only the number is
    /// recorded.
    pub(crate) fn record_refusal(&self, action: Action, group: LimitGroup, why: String) {
        let (at, now) = (SystemTime::now().into(), Instant::now());
        self.counters.count_action(counted_kind(&action), "refused");
        let is_first = {
            let mut inbox = queue::lock(&self.queue);
            inbox.refusals.add(action, group, why, at, now)
        };
        if is_first && let Err(why) = self.wake() {
            event!(NotRecorded, why; "a refusal is not recorded");
        }
    }

    /// Makes the writing thread check the action queue.
    fn wake(&self) -> Result<(), String> {
        match self.commands.try_send(WriterCommand::CheckQueue) {
            // With a full command queue, the writer checks the action queue after each command.
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(CLOSED.into()),
        }
    }

    /// Records device events, without waiting.
    pub(crate) fn record_device_events(&self, events: Vec<GpuEvent>) {
        if events.is_empty() {
            return;
        }
        self.counters.count_xids(&events);
        let count = events.len();
        if self
            .commands
            .try_send(WriterCommand::DeviceEvents(events))
            .is_err()
        {
            event!(NotRecorded, count; "the queue for GPU events is full: not recorded");
        }
    }

    /// Changes how long the history is kept.
    pub(crate) fn set_retention(&self, length: Retention) {
        if self
            .commands
            .try_send(WriterCommand::SetRetention(length))
            .is_err()
        {
            tracing::warn!(
                "the store is behind: the new retention takes effect at the next reload"
            );
        }
    }

    /// Returns one page of samples. `may_read` as in [`Self::summary`].
    pub(crate) async fn sample_page(
        &self,
        query: AuditQuery,
        may_read: impl Fn(Option<u32>, Option<u32>) -> bool + Send + 'static,
    ) -> Result<AuditPage, Refusal> {
        self.run_query(ReaderCommand::Samples, move |file| {
            query::sample_page(file, &query, &may_read)
        })
        .await
    }

    /// Returns a summary of the samples. `may_read` decides, by the uid of a process and the owner
    /// of its user namespace, whether the caller may see its command line.
    pub(crate) async fn summary(
        &self,
        filter: AuditFilter,
        may_read: impl Fn(Option<u32>, Option<u32>) -> bool + Send + 'static,
    ) -> Result<AuditSummary, Refusal> {
        self.run_query(ReaderCommand::Samples, move |file| {
            query::summary(file, &filter, &may_read)
        })
        .await
    }

    async fn run_query<T: Send + 'static>(
        &self,
        file: fn(Box<dyn StoreQuery>) -> ReaderCommand,
        ask: impl FnOnce(&mut Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let question = reader::PendingQuery { run: ask, answer };
        self.queries
            .try_send(file(Box::new(question)))
            .map_err(|_| Refusal::Busy)?;
        answered.await.map_err(|_| Refusal::Internal)?
    }

    pub(crate) fn faults(&self) -> Vec<FaultCause> {
        lock(&self.status).faults.clone()
    }

    pub(crate) fn report(&self) -> StoreReport {
        let status = lock(&self.status);
        StoreReport {
            directory: self.directory.display().to_string(),
            samples: status.samples,
            audit: status.audit,
            recorded_since: status.recorded_since,
            written_at: status.written_at,
            written: status.samples_written,
            dropped: status.samples_dropped,
        }
    }

    /// Writes pending data and closes the files, within a second or two.
    pub(crate) fn close(&self) {
        // The reader closes first: only the last connection to close can empty the write-ahead log,
        // and the reader cannot write.
        let (done, wait) = sync_channel(1);
        if self.queries.try_send(ReaderCommand::Close(done)).is_ok() {
            // A remaining write-ahead log is read at the next start.
            let _ = wait.recv_timeout(ANSWER_TIMEOUT);
        }
        let (done, wait) = sync_channel(1);
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        let closed = self
            .send_command(deadline, WriterCommand::Close(done))
            .is_ok()
            && wait.recv_timeout(left()).is_ok();
        if !closed {
            tracing::warn!("the store did not close in time");
        }
    }

    /// Sends a command; waits while the queue is full, until the deadline at most.
    fn send_command(&self, deadline: Instant, mut order: WriterCommand) -> Result<(), ()> {
        while let Err(error) = self.commands.try_send(order) {
            order = match error {
                TrySendError::Full(order) if Instant::now() < deadline => order,
                TrySendError::Full(_) | TrySendError::Disconnected(_) => return Err(()),
            };
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
