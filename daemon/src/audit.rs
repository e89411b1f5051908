//! The store: samples of devices and processes, and the record of what the
//! daemon did. Two SQLite files, each written by one thread alone; whoever has
//! something to store hands it over and goes on.

mod database;

mod event_row;

mod query;

mod reader;

mod row;

mod samples;

mod steady;

mod writer;

use gpukill_proto::audit::{AuditPage, AuditQuery};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{GpuEvent, Snapshot};
use gpukill_proto::status::StoreReport;
use gpukill_proto::units::{Bytes, Timestamp};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
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

/// What is told to the writing thread.
enum Order {
    Sample(Arc<Snapshot>),
    Record(Event),
    Devices(Vec<GpuEvent>),
    Keep(Duration),
    Close(SyncSender<()>),
}

/// What the daemon did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The daemon started; its version.
    Started(&'static str),
    /// The daemon stopped in order.
    Stopped,
    /// Something happened to a device, so many times at once.
    Device(GpuEvent, u64),
    /// Somebody asked to let go of the driver: who, and until when.
    Quiesced(u32, Timestamp),
    /// Somebody ended that early: who.
    Resumed(u32),
}

/// What is told to the reading thread.
enum Inquiry {
    Question(Question),
    Close(SyncSender<()>),
}

/// A question, and where its answer goes.
struct Question {
    query: AuditQuery,
    answer: oneshot::Sender<Result<AuditPage, Refusal>>,
}

/// The store's near side. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    orders: SyncSender<Order>,
    questions: SyncSender<Inquiry>,
    shared: Arc<Mutex<Standing>>,
    directory: Arc<PathBuf>,
}

/// How the store stands.
#[derive(Debug, Default)]
struct Standing {
    fault: Option<String>,
    samples: Bytes,
    audit: Bytes,
    written_at: Option<Timestamp>,
    dropped: u64,
}

impl Store {
    /// Starts the store in `directory`; `boot` names this boot of the box. A
    /// store that cannot be opened is a fault, not an error, and is tried again.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(directory: PathBuf, boot: String, keep: Duration) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(QUEUE);
        let (questions, asked) = sync_channel(QUESTIONS);
        let shared = Arc::new(Mutex::new(Standing::default()));
        let store = Self {
            orders,
            questions,
            shared: Arc::clone(&shared),
            directory: Arc::new(directory.clone()),
        };
        let writer = writer::Writer::new(directory.clone(), boot, keep, shared);
        std::thread::Builder::new()
            .name("store-write".into())
            .spawn(move || writer.run(&received))?;
        std::thread::Builder::new()
            .name("store-read".into())
            .spawn(move || reader::run(&directory, &asked))?;
        Ok(store)
    }

    /// Keeps a sample, unless too many wait already.
    pub(crate) fn sample(&self, snapshot: Arc<Snapshot>) {
        match self.orders.try_send(Order::Sample(snapshot)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                lock(&self.shared).dropped += 1
            }
        }
    }

    /// Records what the daemon did. Waits while the queue is full, but not for
    /// ever: a disk that hangs must not keep the daemon from stopping.
    pub(crate) fn record(&self, event: Event) {
        let deadline = Instant::now() + RECORD_PATIENCE;
        let mut order = Order::Record(event);
        while let Err(error) = self.orders.try_send(order) {
            order = match error {
                TrySendError::Full(order) if Instant::now() < deadline => order,
                TrySendError::Full(_) | TrySendError::Disconnected(_) => {
                    tracing::error!("the store does not take an event: not recorded");
                    return;
                }
            };
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Records what happened to devices, without ever waiting.
    pub(crate) fn note(&self, events: Vec<GpuEvent>) {
        if events.is_empty() {
            return;
        }
        let count = events.len();
        if self.orders.try_send(Order::Devices(events)).is_err() {
            tracing::error!(
                count,
                "the store does not take events of GPUs: not recorded"
            );
        }
    }

    /// Changes how long samples are kept.
    pub(crate) fn keep(&self, length: Duration) {
        if self.orders.try_send(Order::Keep(length)).is_err() {
            tracing::warn!("the store is behind: the new retention waits for the next reload");
        }
    }

    /// Answers a question about the past.
    ///
    /// # Errors
    /// Why it cannot be answered.
    pub(crate) async fn ask(&self, query: AuditQuery) -> Result<AuditPage, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.questions
            .try_send(Inquiry::Question(Question { query, answer }))
            .map_err(|_| Refusal::Busy)?;
        answered.await.map_err(|_| Refusal::Internal)?
    }

    /// What is wrong with the store now.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.shared).fault.clone()
    }

    /// How the store stands.
    pub(crate) fn report(&self) -> StoreReport {
        let standing = lock(&self.shared);
        StoreReport {
            directory: self.directory.display().to_string(),
            samples: standing.samples,
            audit: standing.audit,
            written_at: standing.written_at,
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
        let closed = self.orders.try_send(Order::Close(done)).is_ok()
            && wait.recv_timeout(CLOSE_PATIENCE).is_ok();
        if !closed {
            tracing::warn!("the store did not close in time");
        }
    }
}

fn lock(shared: &Mutex<Standing>) -> MutexGuard<'_, Standing> {
    // Nothing panics while it holds this lock; if something did, the values in
    // it are whole all the same.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
