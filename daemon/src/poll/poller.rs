//! The poll thread: one poll per interval. No client, disk or name service can delay it.

use super::sampler::{Sampler, SamplerInput};
use super::{PollResult, SnapshotBuilder};
use crate::clock::Clock;
use crate::config::Config;
use crate::fault::{FaultCause, PartFault};
use crate::guard::Guard;
use crate::heap::{self, TrimSchedule};
use crate::log_events::event;
use crate::rogue::Rogue;
use crate::state::{HolderDemand, PublishedPoll, SnapshotPublisher, whole_milliseconds};
use crate::store::{Sample, Store};
use crate::systemd;
use gpukill_policy::health;
use gpukill_proto::model::{DeviceId, EventKind, GpuEvent, Snapshot};
use gpukill_proto::status::PollingReport;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// An event for the poller between polls.
pub(crate) enum PollerEvent {
    /// New settings, and a fault about keys that need a restart: those are ignored.
    Reload(Arc<Config>, Option<FaultCause>),
    /// New settings were rejected, with this fault.
    ReloadRejected(FaultCause),
    /// Drop the rows of these devices, if they are gone.
    ForgetDevices(Vec<DeviceId>),
    /// Poll at once.
    PollNow,
    /// A backend answered too late for the last poll: poll at once if the next poll is far away.
    LateAnswer,
    /// Finish the poll and return.
    Stop,
}

/// The longest that a poll waits for a slow backend at any interval.
const MAX_BACKEND_WAIT: Duration = Duration::from_secs(1);

/// The longest that a late answer waits for the next poll.
const MAX_LATE_ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The longest interval that a slow driver causes.
const MAX_STRETCHED_INTERVAL: Duration = Duration::from_secs(30);

/// The poll thread with all that it owns.
pub(crate) struct Poller {
    pub(crate) snapshot_builder: SnapshotBuilder,
    pub(crate) sampler: Sampler,
    pub(crate) publisher: SnapshotPublisher,
    pub(crate) store: Store,
    pub(crate) guard: Guard,
    pub(crate) rogue: Rogue,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<Config>,
    /// The fault of the settings that were read last.
    pub(crate) settings_fault: Option<FaultCause>,
    pub(crate) holder_demand: HolderDemand,
    /// The slowest answer of a slow driver.
    pub(crate) slowest: Option<Duration>,
    pub(crate) trim: TrimSchedule,
}

impl Poller {
    /// Polls until a stop event, or until all senders are gone.
    pub(crate) fn run(mut self, events: &Receiver<PollerEvent>) {
        let mut schedule = PollSchedule::starting_at(self.clock.monotonic());
        loop {
            let wait = schedule.wait(self.clock.monotonic(), systemd::watchdog_interval());
            match events.recv_timeout(wait) {
                Ok(PollerEvent::Reload(config, fault)) => {
                    self.config = config;
                    self.settings_fault = fault;
                    schedule.advance(self.clock.monotonic(), self.interval());
                }
                Ok(PollerEvent::ReloadRejected(why)) => {
                    self.settings_fault = Some(why);
                    schedule.advance(self.clock.monotonic(), self.interval());
                }
                Ok(PollerEvent::ForgetDevices(devices)) => {
                    self.snapshot_builder.forget_devices(&devices);
                    schedule.advance(self.clock.monotonic(), Duration::ZERO);
                }
                Ok(PollerEvent::PollNow) => {
                    schedule.advance(self.clock.monotonic(), Duration::ZERO)
                }
                Ok(PollerEvent::LateAnswer) => {
                    let now = self.clock.monotonic();
                    if schedule.wait(now, None) > MAX_LATE_ANSWER_WAIT {
                        schedule.advance(now, Duration::ZERO);
                    }
                }
                Ok(PollerEvent::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    if let Some(sample) = self.sampler.complete_sample() {
                        self.distribute_sample(sample);
                    }
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.clock.monotonic();
                    if schedule.is_due(now) {
                        schedule.start_poll(now, self.interval());
                        self.poll(&mut schedule);
                    }
                }
            }
            // Only here: the watchdog must fire when a poll hangs.
            systemd::pet_watchdog();
        }
    }

    /// The current poll interval.
    fn interval(&self) -> Duration {
        stretched_interval(self.config.daemon.poll_interval, self.slowest)
    }

    fn poll(&mut self, schedule: &mut PollSchedule) {
        let interval = self.interval();
        let timeout = (interval / 2).min(MAX_BACKEND_WAIT);
        // Both times are of the same moment: a poll may take a while.
        let (now, at) = (self.clock.now(), self.clock.monotonic());
        let PollResult {
            snapshot,
            sharing,
            holders,
            holders_at,
            events,
            groups,
            accounts,
            slowest,
            is_late,
            energy,
        } = self.snapshot_builder.poll(
            timeout,
            now,
            self.collect_faults(),
            &self.config.alerts,
            self.holder_demand.is_requested(),
        );
        self.slowest = slowest;
        schedule.record_answer(is_late);
        for event in &events {
            log_device_event(event, &snapshot);
        }
        self.store.record_device_events(events);
        self.store.record_fault_changes(&snapshot);
        let polling = PollingReport {
            interval_ms: whole_milliseconds(self.interval()),
            set_interval_ms: whole_milliseconds(self.config.daemon.poll_interval),
            last_at: Some(self.clock.now()),
            polls: schedule.started,
            late: schedule.late,
        };
        if schedule.started == 1 {
            systemd::notify_ready();
        }
        systemd::notify_status(&snapshot);
        self.publisher.send_replace(PublishedPoll {
            snapshot: Arc::clone(&snapshot),
            sharing,
            accounts: Arc::clone(&accounts),
            holders,
            holders_at,
            polling,
            energy,
        });
        self.rogue.add_poll(&snapshot, self.guard.status());
        let poll = SamplerInput {
            snapshot: &snapshot,
            groups: &groups,
            accounts: &accounts,
            suspected: &self.rogue.suspicions(),
            at,
            interval,
            sample_interval: self.config.audit.sample_interval,
        };
        let mut departed = 0;
        for sample in self.sampler.add(&poll) {
            departed += sample.departed.len();
            self.distribute_sample(sample);
        }
        if self.trim.is_due(departed, at) {
            heap::return_free_memory();
        }
    }

    /// The faults of the parts of the daemon that no backend reports.
    fn collect_faults(&self) -> Vec<PartFault> {
        let parts = [
            ("store", self.store.faults()),
            ("guard", self.guard.faults()),
            ("rogue", self.rogue.faults()),
            ("settings", self.settings_fault.iter().cloned().collect()),
        ];
        let of_part = |(part, faults): (&'static str, Vec<FaultCause>)| {
            let faults = faults.into_iter();
            faults.map(move |fault| fault.with_part(part))
        };
        parts.into_iter().flat_map(of_part).collect()
    }

    fn distribute_sample(&self, sample: Sample) {
        self.guard.add_sample(&sample);
        self.rogue.add_sample(&sample);
        self.store.record_sample(sample);
    }
}

/// Logs a device event as a warning, except for a fault of a program.
fn log_device_event(event: &GpuEvent, snapshot: &Snapshot) {
    let mut devices = snapshot.devices.iter();
    let index = devices
        .find(|device| Some(&device.id) == event.device.as_ref())
        .map(|device| device.index);
    let gpu = index.map_or_else(|| "?".to_owned(), |index| index.to_string());
    let gpu_uuid = event.device.as_ref().map_or("?", |id| id.0.as_str());
    let what = event.kind.to_string();
    match event.kind {
        EventKind::Xid(xid) => {
            let meaning = health::xid_meaning(xid);
            if health::is_program_fault(xid) {
                event!(ProgramXid, gpu, gpu_uuid, xid, meaning; "{what} on GPU {gpu}");
            } else {
                event!(Xid, gpu, gpu_uuid, xid, meaning; "{what} on GPU {gpu}");
            }
        }
        EventKind::Gone => event!(GpuGone, gpu, gpu_uuid; "GPU {gpu} is gone"),
        EventKind::Returned => event!(GpuReturned, gpu, gpu_uuid; "GPU {gpu} is back"),
        EventKind::MigChange => event!(InstancesChanged, gpu, gpu_uuid; "{what} on GPU {gpu}"),
        EventKind::SingleBitEcc
        | EventKind::DoubleBitEcc
        | EventKind::SingleBitEccStorm
        | EventKind::MemoryRetired
        | EventKind::MemoryRetirementFailed
        | EventKind::NonFatalPoison
        | EventKind::FatalPoison
        | EventKind::Unavailable
        | EventKind::RecoveryAction
        | EventKind::Other(_) => event!(DeviceEvent, gpu, gpu_uuid; "{what} on GPU {gpu}"),
    }
}

/// The configured interval, or the multiple of it that covers the slowest answer and a quarter
/// more.
fn stretched_interval(configured: Duration, slowest: Option<Duration>) -> Duration {
    let Some(slowest) = slowest else {
        return configured;
    };
    let wanted = (slowest + slowest / 4)
        .min(MAX_STRETCHED_INTERVAL)
        .as_millis();
    let times = wanted.div_ceil(configured.as_millis().max(1)).max(1);
    configured.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
}

/// When polls are due, and how many were late.
struct PollSchedule {
    /// By the monotonic clock.
    due: Duration,
    started: u64,
    late: u64,
    /// Whether the last poll started late.
    started_late: bool,
}

impl PollSchedule {
    fn starting_at(now: Duration) -> Self {
        Self {
            due: now,
            started: 0,
            late: 0,
            started_late: false,
        }
    }

    fn wait(&self, now: Duration, at_most: Option<Duration>) -> Duration {
        let until_due = self.due.saturating_sub(now);
        at_most.map_or(until_due, |max_wait| until_due.min(max_wait))
    }

    fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// Brings the next poll forward: a shorter interval takes effect at once.
    fn advance(&mut self, now: Duration, interval: Duration) {
        self.due = self.due.min(now + interval);
    }

    fn start_poll(&mut self, now: Duration, interval: Duration) {
        let delay = now.saturating_sub(self.due);
        self.started += 1;
        self.started_late = delay > interval / 2;
        self.late += u64::from(self.started_late);
        // Missed polls are not made up.
        self.due = if delay > interval {
            now + interval
        } else {
            self.due + interval
        };
    }

    /// Counts a late answer of a driver as a late poll.
    fn record_answer(&mut self, is_late: bool) {
        self.late += u64::from(is_late && !self.started_late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn shorter_interval_takes_effect_at_once() {
        let start = 3_600 * SECOND;
        let mut schedule = PollSchedule::starting_at(start);
        schedule.start_poll(start, 3_600 * SECOND);
        schedule.advance(start + SECOND, 2 * SECOND);
        assert_eq!(schedule.due, start + 3 * SECOND);
        schedule.advance(start + SECOND, 3_600 * SECOND);
        assert_eq!(schedule.due, start + 3 * SECOND);
    }

    #[test]
    fn slow_driver_stretches_by_whole_intervals() {
        let (set, ms) = (2 * SECOND, Duration::from_millis);
        assert_eq!(stretched_interval(set, None), set);
        assert_eq!(stretched_interval(set, Some(ms(4_000))), 6 * SECOND);
        assert_eq!(stretched_interval(set, Some(ms(4_900))), 8 * SECOND);
        assert_eq!(stretched_interval(ms(100), Some(ms(4_000))), 5 * SECOND);
        assert_eq!(
            stretched_interval(60 * SECOND, Some(ms(4_000))),
            60 * SECOND
        );
        assert_eq!(
            stretched_interval(set, Some(600 * SECOND)),
            MAX_STRETCHED_INTERVAL
        );
        assert_eq!(
            stretched_interval(Duration::ZERO, Some(SECOND)),
            Duration::ZERO
        );
    }

    #[test]
    fn unanswered_poll_is_late_once() {
        let mut schedule = PollSchedule::starting_at(SECOND);
        schedule.start_poll(SECOND, SECOND);
        schedule.record_answer(true);
        assert_eq!(schedule.late, 1);
        schedule.start_poll(9 * SECOND, SECOND);
        schedule.record_answer(true);
        assert_eq!(schedule.late, 2);
        schedule.start_poll(10 * SECOND, SECOND);
        schedule.record_answer(false);
        assert_eq!(schedule.late, 2);
    }

    #[test]
    fn missed_polls_are_not_made_up() {
        let start = 3_600 * SECOND;
        let mut schedule = PollSchedule::starting_at(start);
        schedule.start_poll(start, SECOND);
        // A little late: the next poll is due at its planned time.
        schedule.start_poll(start + SECOND + SECOND / 10, SECOND);
        assert_eq!((schedule.due, schedule.late), (start + 2 * SECOND, 0));
        schedule.start_poll(start + 9 * SECOND, SECOND);
        assert_eq!(
            (schedule.due, schedule.started, schedule.late),
            (start + 10 * SECOND, 3, 1)
        );
        assert!(!schedule.is_due(start + 9 * SECOND));
        assert_eq!(
            schedule.wait(start + 9 * SECOND, Some(SECOND / 4)),
            SECOND / 4
        );
    }
}
