//! The thread that writes. A file that cannot be opened or written is a fault
//! with a reason; it is tried again until it works.

mod acting;

mod healing;

mod pruning;

pub(super) use pruning::{Pruning, UNSTEADY};

use super::acts::{Acts, refuse};
use super::database::Opened;
use super::event_row::{self, folded};
use super::inbox::{self, Inbox};
use super::killed::Killed;
use super::refusals::Refused;
use super::reserve::Reserve;
use super::retention::{Keep, delete_before, delete_unused, give_back, recorded_until};
use super::sample::Sample;
use super::samples::Written;
use super::steady::SteadyClock;
use super::{Event, Order, Standing, findings, lock, verdicts};
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::rogue::Finding;
use gpukill_proto::units::Timestamp;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
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

/// So much of what waits is written in one go, each with a wait for the disk:
/// whoever wants an act recorded waits two seconds at most.
const FLUSH_STEP: usize = 50;

/// What waits to be written.
#[derive(Debug)]
enum Pending {
    Event(Timestamp, Event),
    Refused(Refused),
    Verdicts(Vec<GuardRecord>),
    Findings(Vec<Finding>),
}

/// The writing thread's own.
pub(super) struct Writer {
    directory: PathBuf,
    boot: String,
    keep: Keep,
    shared: Arc<Mutex<Standing>>,
    samples: Option<Opened>,
    audit: Option<Opened>,
    written: Written,
    killed: Killed,
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
    reserve: Reserve,
    /// Whether samples pause for lack of room, and whether there is so little
    /// that not even what is too old is deleted.
    are_paused: bool,
    may_delete: bool,
    /// When the directory is looked at again.
    look_at: Instant,
    /// What is told of files that were set aside.
    told_aside: Vec<String>,
    /// When files were set aside.
    set_aside_at: Vec<Instant>,
    /// When a file that somebody could not read is looked over again.
    suspect_at: Option<Instant>,
    /// Whether what is opened next is looked over at length.
    look_long: bool,
    /// What is deleted because somebody asked for it.
    pruning: Option<Pruning>,
}

impl Writer {
    pub(super) fn new(
        directory: PathBuf,
        boot: String,
        keep: Keep,
        inbox: Arc<Mutex<Inbox>>,
        shared: Arc<Mutex<Standing>>,
    ) -> Self {
        let started = Timestamp::from(SystemTime::now());
        let daemon_run = format!("{boot}/{}", started.0);
        Self {
            reserve: Reserve::of(&directory),
            directory,
            boot,
            keep,
            shared,
            samples: None,
            audit: None,
            written: Written::default(),
            killed: Killed::default(),
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
            are_paused: false,
            may_delete: true,
            look_at: Instant::now(),
            told_aside: Vec::new(),
            set_aside_at: Vec::new(),
            suspect_at: None,
            look_long: false,
            pruning: None,
        }
    }

    /// Says of interrupted kills what was done for those that they left.
    pub(super) fn having(mut self, recovered: Option<String>) -> Self {
        self.acts.recovered = recovered;
        self
    }

    /// Writes until an order closes it, or until nobody can send orders any more.
    /// Drops `opening` when it has tried once to open the files.
    pub(super) fn run(mut self, orders: &Receiver<Order>, opening: SyncSender<()>) {
        self.open_what_is_closed();
        drop(opening);
        self.look_around();
        self.tell();
        loop {
            let order = orders.recv_timeout(self.wait());
            self.close_what_was_taken_away();
            self.close_what_is_suspected();
            self.open_what_is_closed();
            self.look();
            match order {
                Ok(Order::Look) => {}
                Ok(Order::Sample(sample)) => self.sample(&sample),
                Ok(Order::Record(event)) => self.record(event),
                Ok(Order::Devices(events)) => {
                    for (event, times) in folded(events) {
                        self.record(Event::Device(event, times));
                    }
                }
                Ok(Order::Faults(changes)) => {
                    for change in changes {
                        self.record(Event::Fault(change));
                    }
                }
                Ok(Order::Verdicts(records)) => self.push(Pending::Verdicts(records)),
                Ok(Order::Findings(told)) => self.push(Pending::Findings(told)),
                Ok(Order::Keep(length)) => self.keep = length,
                Ok(Order::Clock(answer)) => self.tell_of_the_clock(answer),
                Ok(Order::Prune(pruning)) => self.begin_pruning(pruning),
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
            self.look_around();
            self.tell();
        }
    }

    fn wait(&self) -> Duration {
        let retry = (self.samples.is_none() || self.audit.is_none()).then_some(self.retry_at);
        // Pruning waits for the file it prunes.
        let prune = self.samples.is_some().then_some(self.prune_at);
        let told = inbox::open(&self.inbox).refusals.due_at();
        let goes_on = self.audit.is_some() && !self.pending.is_empty();
        let flush = goes_on.then(Instant::now);
        let next = [retry, prune, told, flush, self.looks_again_at()];
        let next = next.into_iter().flatten().min();
        next.map_or(PRUNE_EVERY, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    fn sample(&mut self, sample: &Sample) {
        self.look_at_room();
        self.recall_kills();
        self.write(sample);
    }

    /// One that cannot be written is lost, and counted.
    fn write(&mut self, sample: &Sample) {
        let opened = self.samples.as_mut().filter(|_| !self.are_paused);
        let Some(Opened { connection, .. }) = opened else {
            lock(&self.shared).dropped += 1;
            return;
        };
        match self.written.write(connection, &self.boot, sample) {
            Ok(()) => {
                let mut standing = lock(&self.shared);
                standing.written_at = Some(SystemTime::now().into());
                standing.written += 1;
                drop(standing);
                self.mark();
                self.killed.sampled(Instant::now());
            }
            Err(error) => {
                lock(&self.shared).dropped += 1;
                self.close_samples(&error);
            }
        }
    }

    fn record(&mut self, event: Event) {
        self.push(Pending::Event(SystemTime::now().into(), event));
    }

    fn push(&mut self, pending: Pending) {
        if self.pending.len() >= MOST_PENDING {
            tracing::error!(?pending, "too much waits for the store: not recorded");
            return;
        }
        self.pending.push_back(pending);
        self.flush_events();
    }

    /// Writes some of what waits.
    fn flush_events(&mut self) {
        for _ in 0..FLUSH_STEP {
            if self.pending.is_empty() {
                return;
            }
            let written = self.on_audit(|writer, connection| match writer.pending.front() {
                Some(Pending::Event(at, event)) => {
                    event_row::insert(connection, *at, event, &writer.boot)
                }
                Some(Pending::Refused(it)) => refuse(connection, &writer.daemon_run, it),
                Some(Pending::Verdicts(records)) => verdicts::insert(connection, records),
                Some(Pending::Findings(told)) => findings::insert(connection, &writer.boot, told),
                None => Ok(()),
            });
            if written.is_none() {
                return;
            }
            self.pending.pop_front();
        }
    }

    fn prune(&mut self) {
        let now = Instant::now();
        if self.prune_as_asked(now) {
            return;
        }
        let Some(opened) = self.samples.as_mut().filter(|_| now >= self.prune_at) else {
            return;
        };
        let wall = Timestamp::from(SystemTime::now());
        let recorded = || recorded_until(&opened.connection);
        let believed = if self.may_delete {
            self.clock.believed(wall, now, recorded)
        } else {
            Ok(None)
        };
        let deleted = match believed {
            Ok(Some(at)) => delete_before(&mut opened.connection, self.keep.oldest(at)),
            Ok(None) => {
                self.prune_at = now + PRUNE_EVERY;
                return;
            }
            Err(error) => Err(error),
        };
        match deleted {
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

    /// Now and then, step by step: processes of which no sample is left, and the
    /// room in the file that nothing uses.
    fn tidy(&mut self, now: Instant) {
        let Some(opened) = self.samples.as_mut().filter(|_| now >= self.tidy_at) else {
            return;
        };
        let connection = &mut opened.connection;
        let is_more = match delete_unused(connection) {
            Ok(false) => give_back(connection),
            step => step,
        };
        match is_more {
            Ok(true) => self.prune_at = now + PRUNE_STEP,
            Ok(false) => self.tidy_at = now + TIDY_EVERY,
            Err(error) => {
                self.tidy_at = now + TIDY_EVERY;
                self.close_samples(&error);
            }
        }
        // Rows that are gone are not to be named by new samples.
        self.written.forget();
    }
}

#[cfg(test)]
mod tests;
