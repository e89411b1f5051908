//! The thread that writes. A file that cannot be opened or written is a fault
//! with a reason; it is tried again until it works.

mod acting;

use super::acts::{Acts, refuse};
use super::database::{AUDIT, Kind, Opened, SAMPLES, open};
use super::event_row::{EventRow, folded};
use super::inbox::{self, Inbox};
use super::refusals::Refused;
use super::samples::{Written, delete_before, delete_unused};
use super::steady::SteadyClock;
use super::{Event, Order, Standing, lock};
use gpukill_proto::snapshot::Snapshot;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// The wait before a file that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The time between two looks for old samples, and between two steps of
/// deleting them: other orders come in between.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
const PRUNE_STEP: Duration = Duration::from_millis(20);

/// The time between two looks for what no sample needs any more. It reads all
/// samples of processes: about a second for a week of 64 of them.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);

/// The most events kept in memory while they cannot be written.
const MOST_PENDING: usize = 10_000;

/// The most that may be waiting when a refusal comes: they are larger than events,
/// and anybody causes them.
const MOST_BEFORE_REFUSALS: usize = 1_000;

/// What waits to be written.
enum Pending {
    Event(Timestamp, Event),
    Refused(Refused),
}

/// The writing thread's own.
pub(super) struct Writer {
    directory: PathBuf,
    boot: String,
    keep: Duration,
    shared: Arc<Mutex<Standing>>,
    samples: Option<Opened>,
    audit: Option<Opened>,
    written: Written,
    pending: VecDeque<Pending>,
    inbox: Arc<Mutex<Inbox>>,
    acts: Acts,
    /// Names this run of the daemon.
    daemon_run: String,
    /// Why each file does not work now, and when it is tried again.
    samples_fault: Option<String>,
    audit_fault: Option<String>,
    retry_at: Instant,
    prune_at: Instant,
    tidy_at: Instant,
    clock: SteadyClock,
}

impl Writer {
    pub(super) fn new(
        directory: PathBuf,
        boot: String,
        keep: Duration,
        inbox: Arc<Mutex<Inbox>>,
        shared: Arc<Mutex<Standing>>,
    ) -> Self {
        let started = Timestamp::from(SystemTime::now());
        let daemon_run = format!("{boot}/{}", started.0);
        Self {
            directory,
            boot,
            keep,
            shared,
            samples: None,
            audit: None,
            written: Written::default(),
            pending: VecDeque::new(),
            inbox,
            acts: Acts::new(daemon_run.clone()),
            daemon_run,
            samples_fault: None,
            audit_fault: None,
            retry_at: Instant::now(),
            prune_at: Instant::now(),
            tidy_at: Instant::now() + TIDY_EVERY,
            clock: SteadyClock::starting(SystemTime::now().into(), Instant::now()),
        }
    }

    /// Says of interrupted kills what was done for those that they left.
    pub(super) fn having(mut self, recovered: Option<String>) -> Self {
        self.acts.recovered = recovered;
        self
    }

    /// Writes until it is told to close, or whoever could tell it is gone.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        self.open_what_is_closed();
        self.tell();
        loop {
            let order = orders.recv_timeout(self.wait());
            self.close_what_was_taken_away();
            self.open_what_is_closed();
            self.look();
            match order {
                Ok(Order::Look) => {}
                Ok(Order::Sample(snapshot)) => self.sample(&snapshot),
                Ok(Order::Record(event)) => self.record(event),
                Ok(Order::Devices(events)) => {
                    for (event, times) in folded(events) {
                        self.record(Event::Device(event, times));
                    }
                }
                Ok(Order::Keep(length)) => self.keep = length,
                Ok(Order::Close(done)) => {
                    self.finish();
                    // Closing the last connection empties the write-ahead log.
                    drop((self.samples.take(), self.audit.take()));
                    // The asker may have gone on already.
                    let _ = done.try_send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.flush_events();
            self.prune();
            self.tell();
        }
    }

    fn wait(&self) -> Duration {
        let retry = (self.samples.is_none() || self.audit.is_none()).then_some(self.retry_at);
        // Pruning waits for the file it prunes.
        let prune = self.samples.is_some().then_some(self.prune_at);
        let told = inbox::open(&self.inbox).refusals.due_at();
        let next = [retry, prune, told].into_iter().flatten().min();
        next.map_or(PRUNE_EVERY, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// A file that an admin moved or deleted gets a successor at once.
    fn close_what_was_taken_away(&mut self) {
        for (opened, kind) in [(&mut self.samples, &SAMPLES), (&mut self.audit, &AUDIT)] {
            if opened.take_if(|opened| !opened.is_in_place()).is_some() {
                tracing::warn!(file = kind.file, "was moved or deleted, begins anew");
                self.retry_at = Instant::now();
            }
        }
    }

    fn open_what_is_closed(&mut self) {
        if (self.samples.is_some() && self.audit.is_some()) || Instant::now() < self.retry_at {
            return;
        }
        self.retry_at = Instant::now() + RETRY;
        if self.samples.is_none() {
            (self.samples, self.samples_fault) = split(open(&self.directory, &SAMPLES));
            // It may be another file, with other ids.
            self.written = Written::default();
        }
        if self.audit.is_none() {
            (self.audit, self.audit_fault) = split(self.open_audit());
        }
    }

    fn open_audit(&mut self) -> Result<Opened, String> {
        let mut opened = open(&self.directory, &AUDIT)?;
        let now = SystemTime::now().into();
        self.acts
            .adopt(&mut opened.connection, now)
            .map_err(|error| explain(&self.directory, &AUDIT, &error))?;
        Ok(opened)
    }

    fn sample(&mut self, snapshot: &Snapshot) {
        let Some(Opened { connection, .. }) = &mut self.samples else {
            lock(&self.shared).dropped += 1;
            return;
        };
        match self.written.write(connection, &self.boot, snapshot) {
            Ok(()) => lock(&self.shared).written_at = Some(SystemTime::now().into()),
            Err(error) => {
                lock(&self.shared).dropped += 1;
                self.close_samples(&error);
            }
        }
    }

    fn close_samples(&mut self, error: &rusqlite::Error) {
        self.samples_fault = Some(explain(&self.directory, &SAMPLES, error));
        self.samples = None;
        self.retry_at = Instant::now() + RETRY;
    }

    fn record(&mut self, event: Event) {
        if self.pending.len() >= MOST_PENDING {
            tracing::error!(?event, "too many events wait for the store: not recorded");
            return;
        }
        let at = SystemTime::now().into();
        self.pending.push_back(Pending::Event(at, event));
        self.flush_events();
    }

    fn flush_events(&mut self) {
        while let (Some(opened), Some(pending)) = (&self.audit, self.pending.front()) {
            let inserted = match pending {
                Pending::Event(at, event) => EventRow::of(*at, event).insert(&opened.connection),
                Pending::Refused(it) => refuse(&opened.connection, &self.daemon_run, it),
            };
            if let Err(error) = inserted {
                self.close_audit(&error);
                return;
            }
            self.pending.pop_front();
        }
    }

    fn close_audit(&mut self, error: &rusqlite::Error) {
        self.audit_fault = Some(explain(&self.directory, &AUDIT, error));
        self.audit = None;
        self.retry_at = Instant::now() + RETRY;
    }

    fn prune(&mut self) {
        let now = Instant::now();
        let Some(opened) = self.samples.as_mut().filter(|_| now >= self.prune_at) else {
            return;
        };
        let keep = i64::try_from(self.keep.as_secs()).unwrap_or(i64::MAX);
        let wall = Timestamp::from(SystemTime::now());
        if !self.clock.is_steady(wall, now) {
            self.prune_at = now + PRUNE_EVERY;
            return;
        }
        match delete_before(
            &mut opened.connection,
            wall.plus_seconds(keep.saturating_neg()),
        ) {
            Ok(true) => self.prune_at = now + PRUNE_STEP,
            Ok(false) => {
                self.prune_at = now + PRUNE_EVERY;
                self.tidy(now);
            }
            Err(error) => {
                self.prune_at = now + PRUNE_EVERY;
                self.close_samples(&error);
            }
        }
    }

    /// Now and then: processes of which no sample is left, and the room in the
    /// file that nothing uses.
    fn tidy(&mut self, now: Instant) {
        let Some(opened) = self.samples.as_mut().filter(|_| now >= self.tidy_at) else {
            return;
        };
        self.tidy_at = now + TIDY_EVERY;
        if let Err(error) = delete_unused(&opened.connection) {
            self.close_samples(&error);
        }
        // Rows that are gone are not to be named by new samples.
        self.written = Written::default();
    }

    /// Makes the store's standing known.
    fn tell(&self) {
        let mut faults: Vec<&str> = [&self.samples_fault, &self.audit_fault]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        // Both files may lack the same directory.
        faults.dedup();
        let mut standing = lock(&self.shared);
        standing.fault = (!faults.is_empty()).then(|| faults.join("; "));
        standing.samples = size(&self.directory, &SAMPLES);
        standing.audit = size(&self.directory, &AUDIT);
    }
}

fn split<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(fault) => (None, Some(fault)),
    }
}

fn explain(directory: &Path, kind: &Kind, error: &rusqlite::Error) -> String {
    format!("{}: {error}", directory.join(kind.file).display())
}

/// The file and its write-ahead log.
fn size(directory: &Path, kind: &Kind) -> Bytes {
    let of =
        |name: String| std::fs::metadata(directory.join(name)).map_or(0, |metadata| metadata.len());
    Bytes(of(kind.file.to_owned()) + of(format!("{}-wal", kind.file)))
}

#[cfg(test)]
mod tests;
