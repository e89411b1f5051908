//! The store: samples of devices and processes, and the record of what the
//! daemon did. Two SQLite files, each written by one thread alone; whoever has
//! something to store hands it over and goes on.

mod abouts;

mod acts;

mod aside;

mod asking;

mod backup;

mod copy;

mod cut;

mod database;

mod event_row;

mod fault_log;

mod inbox;

mod killed;

mod measured;

mod open_act;

mod packed;

mod query;

mod reader;

mod refusals;

mod reserve;

mod restore;

mod retention;

mod rolling;

mod row;

mod sample;

mod samples;

mod space;

mod standing;

mod steady;

#[cfg(test)]
pub(crate) mod told;
mod trouble;

pub(crate) mod untrusted;

mod findings;

mod verdicts;

mod writer;

pub(crate) use asking::{Past, PastUses};
pub(crate) use backup::asked_for as asked_for_a_copy;
pub(crate) use copy::Made;
pub(crate) use fault_log::FaultChange;
pub(crate) use measured::Recording;
pub(crate) use query::{Chosen, DeviceProcess, PastUse, Whom};
pub(crate) use restore::Prepared as PreparedRestore;
pub(crate) use retention::Keep;
pub(crate) use sample::{Accounts, Departed, Departure, Groups, Sample, Suspicions, about};

use crate::catalogue::{About, tell};
use crate::faults::FaultCause;
use acts::End;
use fault_log::FaultLog;
use gpukill_policy::access::LimitGroup;
use gpukill_proto::audit::{AuditFilter, AuditPage, AuditQuery, AuditSummary};
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::Finding;
use gpukill_proto::snapshot::{DeviceId, GpuEvent};
use gpukill_proto::status::StoreReport;
use gpukill_proto::units::Timestamp;
use inbox::{Inbox, Intent};
pub(crate) use open_act::{OpenAct, tell_unrecorded_end};
use rusqlite::Connection;
use standing::{Standing, lock};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;

/// So many samples may wait to be written before new ones are dropped.
const QUEUE: usize = 64;

/// So many questions may wait to be answered before new ones are refused.
const QUESTIONS: usize = 16;

/// How long the end of the daemon waits for its last writes, and before that
/// for the question that is being answered.
const CLOSE_PATIENCE: Duration = Duration::from_millis(1500);
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// How long an event waits for its place in the queue.
const RECORD_PATIENCE: Duration = Duration::from_secs(1);

/// How long an act waits until it is recorded.
const INTENT_PATIENCE: Duration = Duration::from_secs(2);

/// Why nothing is recorded at the daemon's end.
const CLOSED: &str = "the store is closed";

/// What is told to the writing thread.
enum Order {
    /// There is something in the inbox.
    Look,
    Sample(Box<Sample>),
    Record(Event),
    Devices(Vec<GpuEvent>),
    Faults(Vec<FaultChange>),
    Verdicts(Vec<GuardRecord>),
    Findings(Vec<Finding>),
    Keep(Keep),
    /// Whether the wall clock can be relied on.
    Clock(oneshot::Sender<bool>),
    Prune(writer::Pruning),
    Close(SyncSender<()>),
}

/// What the daemon did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The daemon started; its version.
    Started(&'static str),
    /// The daemon stopped in order.
    Stopped,
    /// The settings that are in force from now on, as JSON.
    Settings(String),
    /// The rules that are in force from now on: whose, what names them, where they
    /// are written, and their text.
    Rules {
        of: RulesOf,
        revision: Option<String>,
        text: String,
    },
    /// A fault began, or is over.
    Fault(FaultChange),
    /// Something happened to a device, so many times at once.
    Device(GpuEvent, u64),
    /// Somebody asked to let go of the driver: who, and until when.
    Quiesced(u32, Timestamp),
    /// Somebody ended that early: who.
    Resumed(u32),
    /// Somebody had a device that is gone dropped: who, and which.
    Forgotten(u32, DeviceId),
    /// A file of the store was broken and is set aside: as what, and why.
    SetAside(String, String),
}

/// Which rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesOf {
    /// Those by which the guard judges.
    Guard,
    /// Those by which rogues are known.
    Rogues,
}

impl RulesOf {
    /// The kind of event that they are recorded as.
    const fn kind(self) -> &'static str {
        match self {
            Self::Guard => "rules",
            Self::Rogues => "rogue_rules",
        }
    }

    /// What stands before a change of them in the record.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Guard => "",
            Self::Rogues => "rogue: ",
        }
    }
}

/// What a person has the daemon do, before it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) kind: ActKind,
    /// Who asked.
    pub(crate) uid: u32,
    /// What they asked for, as options of the command.
    pub(crate) asked: String,
    /// What is planned, as JSON.
    pub(crate) plan: String,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ActKind {
    Kill,
    Reset,
    /// What is old was deleted from the samples.
    Prune,
    /// The store was copied.
    Backup,
    /// A copy was put in the store's place.
    Restore,
    /// Rules were changed.
    EditRules,
}

impl ActKind {
    const ALL: [Self; 6] = [
        Self::Kill,
        Self::Reset,
        Self::Prune,
        Self::Backup,
        Self::Restore,
        Self::EditRules,
    ];

    /// As it is recorded.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Reset => "reset",
            Self::Prune => "prune",
            Self::Backup => "backup",
            Self::Restore => "restore",
            Self::EditRules => "rules_edit",
        }
    }
}

/// Names a recorded act, for as long as the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ActId(i64);

/// What is told to the reading thread.
enum Inquiry {
    Samples(Box<dyn Asked>),
    Audit(Box<dyn Asked>),
    Close(SyncSender<()>),
}

/// A question of any kind.
trait Asked: Send {
    /// Answers it from a file, or says why that cannot be read; false when the
    /// file may not be the right one any more.
    fn answer(self: Box<Self>, file: Result<&mut Connection, Refusal>) -> bool;
}

/// The store's near side. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    orders: SyncSender<Order>,
    questions: SyncSender<Inquiry>,
    inbox: Arc<Mutex<Inbox>>,
    shared: Arc<Mutex<Standing>>,
    faults: Arc<Mutex<FaultLog>>,
    directory: Arc<PathBuf>,
    /// One copy at a time.
    copying: Arc<tokio::sync::Semaphore>,
}

impl Store {
    /// The directory that its files lie in.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts the store in `directory`; `boot` names this boot of the box, and
    /// `recovered` is what was done for kills that an earlier run of the daemon left.
    /// A store that cannot be opened is a fault, not an error, and is tried again.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        directory: PathBuf,
        boot: String,
        keep: Keep,
        recovered: Option<String>,
    ) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(QUEUE);
        let (questions, asked) = sync_channel(QUESTIONS);
        let shared = Arc::new(Mutex::new(Standing::default()));
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let store = Self {
            orders,
            questions,
            inbox: Arc::clone(&inbox),
            shared: Arc::clone(&shared),
            faults: Arc::default(),
            directory: Arc::new(directory.clone()),
            copying: Arc::new(tokio::sync::Semaphore::new(1)),
        };
        let seen_by_reader = Arc::clone(&shared);
        copy::clean(&directory);
        // Before anybody opens a file. Where it fails the writer tries again.
        if let Err(why) = restore::finish(&directory) {
            tracing::error!(why, "a restore is not finished");
        }
        let writer = writer::Writer::new(directory.clone(), boot, keep, inbox, shared);
        let writer = writer.having(recovered);
        let (opening, opened) = sync_channel(0);
        std::thread::Builder::new()
            .name("store-write".into())
            .spawn(move || writer.run(&received, opening))?;
        std::thread::Builder::new()
            .name("store-read".into())
            .spawn(move || reader::run(&directory, &asked, &opened, &seen_by_reader))?;
        Ok(store)
    }

    /// Keeps a sample, unless too many wait already.
    pub(crate) fn sample(&self, sample: Sample) {
        match self.orders.try_send(Order::Sample(Box::new(sample))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                lock(&self.shared).dropped += 1
            }
        }
    }

    /// Records what the guard decided by one sample; true where it is handed over.
    pub(crate) fn decide(&self, records: Vec<GuardRecord>) -> bool {
        self.orders.try_send(Order::Verdicts(records)).is_ok()
    }

    /// Records who was found to be up to no good; true where it is handed over.
    pub(crate) fn found(&self, findings: Vec<Finding>) -> bool {
        self.orders.try_send(Order::Findings(findings)).is_ok()
    }

    /// Records what the daemon did. Waits while the queue is full, but not for
    /// ever: a disk that hangs must not keep the daemon from stopping.
    pub(crate) fn record(&self, event: Event) {
        if event == Event::Stopped {
            self.record_rest_of_faults();
        }
        let deadline = Instant::now() + RECORD_PATIENCE;
        if self.order_by(deadline, Order::Record(event)).is_err() {
            tell!(NotRecorded; "the store does not take an event: not recorded");
        }
    }

    /// Records and logs what is about to be done. Returns when it is safe on the
    /// disk; waits for that for two seconds at most, so it is for threads that may
    /// wait. What is said here not to be recorded may be in the record after all,
    /// where the disk was slow or its error was none: never as an act under way,
    /// but with the word `unrecorded`.
    ///
    /// # Errors
    /// Why it is not recorded. The caller logs what comes of such an act.
    pub(crate) fn intend(&self, act: Act) -> Result<OpenAct, String> {
        self.intend_about(act, About::default())
    }

    /// The same, and the log names whom it is about.
    ///
    /// # Errors
    /// As [`Store::intend`].
    pub(crate) fn intend_about(&self, act: Act, about: About) -> Result<OpenAct, String> {
        self.intend_since(SystemTime::now().into(), act, about)
    }

    /// The same, of what was asked for at this moment.
    fn intend_since(&self, at: Timestamp, act: Act, about: About) -> Result<OpenAct, String> {
        let recorded = self.intend_within(act.clone(), at, INTENT_PATIENCE);
        let (kind, action, caller_uid) = (act.kind, act.kind.name(), act.uid);
        let (asked, plan, [pid, uid, gpu_uuid]) = (act.asked, act.plan, about.fields());
        match &recorded {
            Ok(ActId(act)) => {
                tell!(
                    ActBegins, act, action, caller_uid, asked, plan, pid, uid, gpu_uuid
                );
            }
            Err(why) => {
                tell!(
                    ActUnrecorded,
                    action,
                    caller_uid,
                    asked,
                    plan,
                    why,
                    pid,
                    uid,
                    gpu_uuid
                );
            }
        }
        recorded.map(|id| OpenAct::new(id, kind, about, self.clone()))
    }

    fn intend_within(&self, act: Act, at: Timestamp, patience: Duration) -> Result<ActId, String> {
        let act = Act {
            asked: cut::text(act.asked, cut::MOST_TEXT),
            plan: cut::json(act.plan, cut::MOST_JSON),
            ..act
        };
        let (answer, answered) = sync_channel(0);
        let intent = Intent {
            act,
            at,
            deadline: Instant::now() + patience,
            answer,
        };
        inbox::open(&self.inbox).intend(intent)?;
        self.wake()?;
        answered
            .recv_timeout(patience)
            .map_err(|_| "the store did not answer in time".to_owned())?
    }

    /// As [`OpenAct::settle`]. The first end of an act holds.
    fn settle(&self, act: ActId, word: &'static str, outcome: String) {
        let end = End {
            at: SystemTime::now().into(),
            word,
            ended: killed::ended(&outcome),
            outcome: Some(cut::json(outcome, cut::MOST_JSON)),
            why: None,
        };
        self.end(act, end);
    }

    fn end(&self, act: ActId, end: End) {
        inbox::open(&self.inbox).end(act, end);
        if let Err(why) = self.wake() {
            let ActId(act) = act;
            tell!(NotRecorded, act, why; "what came of an act is not recorded");
        }
    }

    /// Records and logs an act that was not begun, and why. Never waits. Repeats
    /// are told of once a minute with their number, and of very many different ones
    /// only the number is.
    pub(crate) fn refuse(&self, act: Act, by: LimitGroup, why: String) {
        let (at, now) = (SystemTime::now().into(), Instant::now());
        let is_first = {
            let mut inbox = inbox::open(&self.inbox);
            inbox.refusals.take(act, by, why, at, now)
        };
        if is_first && let Err(why) = self.wake() {
            tell!(NotRecorded, why; "a refusal is not recorded");
        }
    }

    /// Has the writing thread look into the inbox.
    fn wake(&self) -> Result<(), String> {
        match self.orders.try_send(Order::Look) {
            // Where the queue is full it looks after each order.
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(CLOSED.into()),
        }
    }

    /// Records what happened to devices, without ever waiting.
    pub(crate) fn note(&self, events: Vec<GpuEvent>) {
        if events.is_empty() {
            return;
        }
        let count = events.len();
        if self.orders.try_send(Order::Devices(events)).is_err() {
            tell!(NotRecorded, count; "the store does not take events of GPUs: not recorded");
        }
    }

    /// Changes how long the history is kept.
    pub(crate) fn keep(&self, length: Keep) {
        if self.orders.try_send(Order::Keep(length)).is_err() {
            tracing::warn!("the store is behind: the new retention waits for the next reload");
        }
    }

    /// One page of the samples.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn page(&self, query: AuditQuery) -> Result<AuditPage, Refusal> {
        self.ask(Inquiry::Samples, move |file| query::page(file, &query))
            .await
    }

    /// What the samples come to. `may_read` says whose command lines the asker
    /// may see: of processes of this user, in this user's namespace.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn summary(
        &self,
        filter: AuditFilter,
        may_read: impl Fn(Option<u32>, Option<u32>) -> bool + Send + 'static,
    ) -> Result<AuditSummary, Refusal> {
        self.ask(Inquiry::Samples, move |file| {
            query::summary(file, &filter, &may_read)
        })
        .await
    }

    async fn ask<T: Send + 'static>(
        &self,
        file: fn(Box<dyn Asked>) -> Inquiry,
        ask: impl FnOnce(&mut Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let question = reader::Question { ask, answer };
        self.questions
            .try_send(file(Box::new(question)))
            .map_err(|_| Refusal::Busy)?;
        answered.await.map_err(|_| Refusal::Internal)?
    }

    /// What is wrong with the store now.
    pub(crate) fn faults(&self) -> Vec<FaultCause> {
        lock(&self.shared).faults.clone()
    }

    /// How the store stands.
    pub(crate) fn report(&self) -> StoreReport {
        let standing = lock(&self.shared);
        StoreReport {
            directory: self.directory.display().to_string(),
            samples: standing.samples,
            audit: standing.audit,
            written_at: standing.written_at,
            written: standing.written,
            dropped: standing.dropped,
        }
    }

    /// Writes what waits and closes the files, within a second or two.
    pub(crate) fn close(&self) {
        // The reader first: only who closes a file last can empty its
        // write-ahead log, and the reader cannot write.
        let (done, wait) = sync_channel(1);
        if self.questions.try_send(Inquiry::Close(done)).is_ok() {
            // A write-ahead log that stays is read at the next start.
            let _ = wait.recv_timeout(ANSWER_PATIENCE);
        }
        let (done, wait) = sync_channel(1);
        let deadline = Instant::now() + CLOSE_PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        let closed = self.order_by(deadline, Order::Close(done)).is_ok()
            && wait.recv_timeout(left()).is_ok();
        if !closed {
            tracing::warn!("the store did not close in time");
        }
    }

    /// Waits while the queue is full, until then at most.
    fn order_by(&self, deadline: Instant, mut order: Order) -> Result<(), ()> {
        while let Err(error) = self.orders.try_send(order) {
            order = match error {
                TrySendError::Full(order) if Instant::now() < deadline => order,
                TrySendError::Full(_) | TrySendError::Disconnected(_) => return Err(()),
            };
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
