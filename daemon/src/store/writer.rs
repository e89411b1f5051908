//! The writing thread. A file that cannot be opened or written is a fault with a reason; it is
//! retried until it works.

mod actions;
mod pruning;
mod recovery;

pub(super) use pruning::{CLOCK_JUMPED, RequestedPrune};

use super::actions::{OpenActions, insert_refusal};
use super::clock_guard::ClockGuard;
use super::database::OpenDatabase;
use super::disk_reserve::DiskReserve;
use super::event_row::{self, fold_events};
use super::killed_runs::KilledRuns;
use super::queue::{self, ActionQueue};
use super::refusals::RefusalRow;
use super::retention::{Retention, delete_before, delete_unused, history_end, release_pages};
use super::sample::Sample;
use super::sample_writer::SampleWriter;
use super::verdict_allowance::VerdictAllowance;
use super::{RecordedEvent, StoreStatus, WriterCommand, findings, lock, verdicts};
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::units::Timestamp;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// How long after a failure a file is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The interval between two prunes, and the pause between two steps of a prune, in which other
/// commands are handled.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);
const PRUNE_PAUSE: Duration = Duration::from_millis(20);

/// The interval between two cleanups of unused rows. A cleanup reads all samples of processes:
/// about a second for a week of 64 processes.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(3_600);

/// The most events kept in memory while they cannot be written.
const MAX_PENDING: usize = 10_000;

/// The most pending entries up to which a refusal is accepted: refusals are larger than events, and
/// any user can cause them.
const MAX_PENDING_FOR_REFUSALS: usize = 1_000;

/// The pending entries written in one go, each with a sync of the disk: a caller waits two seconds
/// at most for its action to be recorded.
const MAX_FLUSHED: usize = 50;

/// An entry that waits to be written.
#[derive(Debug)]
enum PendingEntry {
    Event(Timestamp, RecordedEvent),
    Refused(RefusalRow),
    Verdicts(Vec<GuardRecord>),
    Findings(Vec<RogueFinding>),
}

/// The state of the writing thread.
pub(super) struct Writer {
    directory: PathBuf,
    boot: String,
    retention: Retention,
    status: Arc<Mutex<StoreStatus>>,
    samples: Option<OpenDatabase>,
    audit: Option<OpenDatabase>,
    sample_writer: SampleWriter,
    killed_runs: KilledRuns,
    pending: VecDeque<PendingEntry>,
    queue: Arc<Mutex<ActionQueue>>,
    verdict_allowance: VerdictAllowance,
    open_actions: OpenActions,
    /// Identifies this run of the daemon.
    daemon_run: String,
    /// Why each file does not work now, and when it is retried.
    samples_fault: Option<String>,
    audit_fault: Option<String>,
    retry_at: Instant,
    prune_at: Instant,
    cleanup_at: Instant,
    clock: ClockGuard,
    reserve: DiskReserve,
    /// Whether samples pause for lack of space, and whether there is enough space to delete old
    /// rows.
    are_paused: bool,
    may_delete: bool,
    /// When the directory is checked again.
    check_directory_at: Instant,
    /// The faults about quarantined files.
    quarantine_faults: Vec<String>,
    /// When files were quarantined.
    quarantined_at: Vec<Instant>,
    /// When a file that a query could not read may be checked again.
    next_suspect_check: Option<Instant>,
    /// Whether the next opening makes a long integrity check.
    is_long_check_due: bool,
    /// The prune that a user requested.
    pruning: Option<RequestedPrune>,
}

impl Writer {
    pub(super) fn new(
        directory: PathBuf,
        boot: String,
        keep: Retention,
        inbox: Arc<Mutex<ActionQueue>>,
        shared: Arc<Mutex<StoreStatus>>,
    ) -> Self {
        let started = Timestamp::from(SystemTime::now());
        let daemon_run = format!("{boot}/{}", started.0);
        Self {
            reserve: DiskReserve::new(&directory),
            directory,
            boot,
            retention: keep,
            status: shared,
            samples: None,
            audit: None,
            sample_writer: SampleWriter::default(),
            killed_runs: KilledRuns::default(),
            pending: VecDeque::new(),
            queue: inbox,
            verdict_allowance: VerdictAllowance::default(),
            open_actions: OpenActions::new(daemon_run.clone()),
            daemon_run,
            samples_fault: None,
            audit_fault: None,
            retry_at: Instant::now(),
            prune_at: Instant::now(),
            cleanup_at: Instant::now() + CLEANUP_INTERVAL,
            clock: ClockGuard::new(SystemTime::now().into(), Instant::now()),
            are_paused: false,
            may_delete: true,
            check_directory_at: Instant::now(),
            quarantine_faults: Vec::new(),
            quarantined_at: Vec::new(),
            next_suspect_check: None,
            is_long_check_due: false,
            pruning: None,
        }
    }

    /// Adds what was done for interrupted kills to their rows.
    pub(super) fn with_recovered_kills(mut self, recovered: Option<String>) -> Self {
        self.open_actions.recovered = recovered;
        self
    }

    /// Writes until a command closes the writer, or until all senders are gone. Drops `opening`
    /// after the first attempt to open the files.
    pub(super) fn run(mut self, orders: &Receiver<WriterCommand>, opening: SyncSender<()>) {
        self.open_closed_files();
        drop(opening);
        self.check_directory();
        self.publish_status();
        loop {
            let order = orders.recv_timeout(self.time_to_next_work());
            self.close_moved_files();
            self.close_suspected_files();
            self.open_closed_files();
            self.process_queue();
            match order {
                Ok(WriterCommand::CheckQueue) => {}
                Ok(WriterCommand::Sample(sample)) => self.handle_sample(&sample),
                Ok(WriterCommand::Record(event)) => self.push_event(event),
                Ok(WriterCommand::DeviceEvents(events)) => {
                    for (event, times) in fold_events(events) {
                        self.push_event(RecordedEvent::Device(event, times));
                    }
                }
                Ok(WriterCommand::Faults(changes)) => {
                    for change in changes {
                        self.push_event(RecordedEvent::Fault(change));
                    }
                }
                Ok(WriterCommand::Verdicts(records)) => {
                    let allowance = &mut self.verdict_allowance;
                    let records = allowance.limit_records(records, Instant::now());
                    if !records.is_empty() {
                        self.push(PendingEntry::Verdicts(records));
                    }
                }
                Ok(WriterCommand::Findings(findings)) => {
                    self.push(PendingEntry::Findings(findings))
                }
                Ok(WriterCommand::SetRetention(length)) => self.retention = length,
                Ok(WriterCommand::CheckClock(answer)) => self.answer_clock_check(answer),
                Ok(WriterCommand::Prune(pruning)) => self.begin_pruning(pruning),
                Ok(WriterCommand::Close(done)) => {
                    self.finish();
                    // Closing the last connection empties the write-ahead log.
                    drop((self.samples.take(), self.audit.take()));
                    // The caller may have gone away.
                    let _ = done.try_send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.flush_events();
            self.prune();
            self.check_directory();
            self.publish_status();
        }
    }

    fn time_to_next_work(&self) -> Duration {
        let retry = (self.samples.is_none() || self.audit.is_none()).then_some(self.retry_at);
        // Pruning waits for the file that it prunes.
        let prune = self.samples.is_some().then_some(self.prune_at);
        let refusals = queue::lock(&self.queue).refusals.next_due();
        let has_pending = self.audit.is_some() && !self.pending.is_empty();
        let flush = has_pending.then(Instant::now);
        let next = [retry, prune, refusals, flush, self.next_directory_check()];
        let next = next.into_iter().flatten().min();
        next.map_or(PRUNE_INTERVAL, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    fn handle_sample(&mut self, sample: &Sample) {
        self.check_space();
        self.add_earlier_kills();
        self.write_sample(sample);
    }

    /// Writes a sample. A sample that cannot be written is dropped and counted.
    fn write_sample(&mut self, sample: &Sample) {
        let opened = self.samples.as_mut().filter(|_| !self.are_paused);
        let Some(OpenDatabase { connection, .. }) = opened else {
            lock(&self.status).samples_dropped += 1;
            return;
        };
        match self.sample_writer.write(connection, &self.boot, sample) {
            Ok(()) => {
                let mut status = lock(&self.status);
                status.written_at = Some(SystemTime::now().into());
                status.samples_written += 1;
                drop(status);
                self.mark_killed_runs();
                self.killed_runs.count_sample(Instant::now());
            }
            Err(error) => {
                lock(&self.status).samples_dropped += 1;
                self.close_samples(&error);
            }
        }
    }

    fn push_event(&mut self, event: RecordedEvent) {
        self.push(PendingEntry::Event(SystemTime::now().into(), event));
    }

    fn push(&mut self, pending: PendingEntry) {
        if self.pending.len() >= MAX_PENDING {
            tracing::error!(
                ?pending,
                "too many entries wait for the store: not recorded"
            );
            return;
        }
        self.pending.push_back(pending);
        self.flush_events();
    }

    /// Writes some of the pending entries.
    fn flush_events(&mut self) {
        for _ in 0..MAX_FLUSHED {
            if self.pending.is_empty() {
                return;
            }
            let written = self.with_audit(|writer, connection| match writer.pending.front() {
                Some(PendingEntry::Event(at, event)) => {
                    event_row::insert(connection, *at, event, &writer.boot)
                }
                Some(PendingEntry::Refused(it)) => {
                    insert_refusal(connection, &writer.daemon_run, it)
                }
                Some(PendingEntry::Verdicts(records)) => verdicts::insert(connection, records),
                Some(PendingEntry::Findings(findings)) => {
                    findings::insert(connection, &writer.boot, findings)
                }
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
        if self.run_requested_prune(now) {
            return;
        }
        let Some(opened) = self.samples.as_mut().filter(|_| now >= self.prune_at) else {
            return;
        };
        let wall = Timestamp::from(SystemTime::now());
        let recorded = || history_end(&opened.connection);
        let believed = if self.may_delete {
            self.clock.trusted_time(wall, now, recorded)
        } else {
            Ok(None)
        };
        let deleted = match believed {
            Ok(Some(at)) => delete_before(&mut opened.connection, self.retention.oldest(at)),
            Ok(None) => {
                self.prune_at = now + PRUNE_INTERVAL;
                return;
            }
            Err(error) => Err(error),
        };
        match deleted {
            Ok(true) => self.prune_at = now + PRUNE_PAUSE,
            Ok(false) => {
                self.prune_at = now + PRUNE_INTERVAL;
                self.clean_up(now);
            }
            Err(error) => {
                self.prune_at = now + PRUNE_INTERVAL;
                self.close_samples(&error);
            }
        }
    }

    /// Cleans up at intervals, step by step: runs and processes without samples, and unused pages
    /// of the file.
    fn clean_up(&mut self, now: Instant) {
        let Some(opened) = self.samples.as_mut().filter(|_| now >= self.cleanup_at) else {
            return;
        };
        let connection = &mut opened.connection;
        let is_more = match delete_unused(connection) {
            Ok(false) => release_pages(connection),
            step => step,
        };
        match is_more {
            Ok(true) => self.prune_at = now + PRUNE_PAUSE,
            Ok(false) => self.cleanup_at = now + CLEANUP_INTERVAL,
            Err(error) => {
                self.cleanup_at = now + CLEANUP_INTERVAL;
                self.close_samples(&error);
            }
        }
        // New samples must not refer to deleted rows.
        self.sample_writer.forget();
    }
}

#[cfg(test)]
mod tests;
