//! The thread that polls: one tick at each interval, and nothing that a client,
//! a disk or a name service does can delay it.

use crate::audit::Store;
use crate::catalogue::tell;
use crate::clock::Clock;
use crate::config::Config;
use crate::faults::FaultCause;
use crate::gather::{Gatherer, Poll};
use crate::guard::Guard;
use crate::heap::{self, Trim};
use crate::rogue::Rogue;
use crate::state::{Published, Publisher, Wanted, whole_milliseconds};
use crate::systemd;
use crate::tick::{Ticked, Ticker};
use gpukill_policy::xid;
use gpukill_proto::snapshot::{DeviceId, EventKind, GpuEvent, Snapshot};
use gpukill_proto::status::PollingReport;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// What can happen to the poller, besides its time.
pub(crate) enum Event {
    /// New settings, and what is to be told of those that need a restart: they are
    /// ignored.
    Reload(Arc<Config>, Option<FaultCause>),
    /// New settings are not taken: what is to be told of that.
    Refused(FaultCause),
    /// Drop the rows of these devices, where they are gone.
    Forget(Vec<DeviceId>),
    /// Tick now, and not when it is time.
    Hurry,
    /// A backend has answered too late for the last tick: tick now, if the next
    /// would be long in coming.
    Late,
    /// Finish the tick and return.
    Stop,
}

/// The longest a tick waits for a slow backend, however long the interval.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// A late answer waits for the next tick at most so long.
const LONG: Duration = Duration::from_secs(5);

/// A slow driver makes the interval at most so long.
const MAX_STRETCHED: Duration = Duration::from_secs(30);

/// Everything a tick touches.
pub(crate) struct Poller {
    pub(crate) ticker: Ticker,
    pub(crate) gatherer: Gatherer,
    pub(crate) publisher: Publisher,
    pub(crate) store: Store,
    pub(crate) guard: Guard,
    pub(crate) rogue: Rogue,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<Config>,
    /// What is wrong with the settings that were read last.
    pub(crate) amiss: Option<FaultCause>,
    pub(crate) wanted: Wanted,
    /// How long the answers of a slow driver take.
    pub(crate) slowest: Option<Duration>,
    pub(crate) trim: Trim,
}

impl Poller {
    /// Polls until it is told to stop, or whoever could tell it is gone.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        let mut schedule = Schedule::starting(self.clock.steady());
        loop {
            let wait = schedule.wait(self.clock.steady(), systemd::watchdog_interval());
            match events.recv_timeout(wait) {
                Ok(Event::Reload(config, amiss)) => {
                    self.config = config;
                    self.amiss = amiss;
                    schedule.hurry(self.clock.steady(), self.interval());
                }
                Ok(Event::Refused(why)) => {
                    self.amiss = Some(why);
                    schedule.hurry(self.clock.steady(), self.interval());
                }
                Ok(Event::Forget(devices)) => {
                    self.ticker.forget(&devices);
                    schedule.hurry(self.clock.steady(), Duration::ZERO);
                }
                Ok(Event::Hurry) => schedule.hurry(self.clock.steady(), Duration::ZERO),
                Ok(Event::Late) => {
                    let now = self.clock.steady();
                    if schedule.wait(now, None) > LONG {
                        schedule.hurry(now, Duration::ZERO);
                    }
                }
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    if let Some(sample) = self.gatherer.rest() {
                        self.guard.sample(&sample);
                        self.rogue.sample(&sample);
                        self.store.sample(sample);
                    }
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.clock.steady();
                    if schedule.is_due(now) {
                        schedule.begin(now, self.interval());
                        self.tick(&mut schedule);
                    }
                }
            }
            // Only here: a tick that is stuck lets the watchdog bite.
            systemd::pet_watchdog();
        }
    }

    /// The time between two polls.
    fn interval(&self) -> Duration {
        stretched(self.config.daemon.poll_interval, self.slowest)
    }

    fn tick(&mut self, schedule: &mut Schedule) {
        let interval = self.interval();
        let others = self.store.faults().into_iter();
        let others = others.map(|fault| fault.found_in("store"));
        let rules = self.guard.faults().into_iter();
        let rules = rules.map(|fault| fault.found_in("guard"));
        let rogue = self.rogue.faults().into_iter();
        let rogue = rogue.map(|fault| fault.found_in("rogue"));
        let amiss = self.amiss.iter();
        let settings = amiss.map(|fault| fault.clone().found_in("settings"));
        let patience = (interval / 2).min(LONGEST_PATIENCE);
        // Both of the same moment: a poll may take a while.
        let (now, at) = (self.clock.now(), self.clock.steady());
        let Ticked {
            snapshot,
            sharing,
            held,
            events,
            groups,
            accounts,
            slowest,
            is_late,
        } = self.ticker.tick(
            patience,
            now,
            others.chain(rules).chain(rogue).chain(settings).collect(),
            &self.config.alerts,
            self.wanted.is_wanted(),
        );
        self.slowest = slowest;
        schedule.answered(is_late);
        for event in &events {
            log(event, &snapshot);
        }
        self.store.note(events);
        self.store.follow_faults(&snapshot);
        let polling = PollingReport {
            interval_ms: whole_milliseconds(self.interval()),
            set_interval_ms: whole_milliseconds(self.config.daemon.poll_interval),
            last_at: Some(self.clock.now()),
            ticks: schedule.begun,
            late: schedule.late,
        };
        if schedule.begun == 1 {
            systemd::ready();
        }
        systemd::status(&snapshot);
        self.publisher.send_replace(Published {
            snapshot: Arc::clone(&snapshot),
            sharing,
            accounts: Arc::clone(&accounts),
            holders: held,
            polling,
        });
        self.rogue.poll(&snapshot, self.guard.standing());
        let poll = Poll {
            snapshot: &snapshot,
            groups: &groups,
            accounts: &accounts,
            suspected: &self.rogue.suspicions(),
            at,
            interval,
            sample_interval: self.config.audit.sample_interval,
        };
        let mut departed = 0;
        for sample in self.gatherer.add(&poll) {
            departed += sample.departed.len();
            self.guard.sample(&sample);
            self.rogue.sample(&sample);
            self.store.sample(sample);
        }
        if self.trim.is_due(departed, at) {
            heap::give_back();
        }
    }
}

/// Writes what happened to a device into the log: as a warning, but where a
/// program's own fault is told.
fn log(event: &GpuEvent, snapshot: &Snapshot) {
    let mut devices = snapshot.devices.iter();
    let index = devices
        .find(|device| Some(&device.id) == event.device.as_ref())
        .map(|device| device.index);
    let gpu = index.map_or_else(|| "?".to_owned(), |index| index.to_string());
    let gpu_uuid = event.device.as_ref().map_or("?", |id| id.0.as_str());
    let what = event.kind.to_string();
    match event.kind {
        EventKind::Xid(xid) => {
            let meaning = xid::meaning(xid).unwrap_or("see NVIDIA's list of XIDs");
            if xid::is_of_a_program(xid) {
                tell!(ProgramXid, gpu, gpu_uuid, xid, meaning; "{what} on GPU {gpu}");
            } else {
                tell!(Xid, gpu, gpu_uuid, xid, meaning; "{what} on GPU {gpu}");
            }
        }
        EventKind::Gone => tell!(GpuGone, gpu, gpu_uuid; "GPU {gpu} is gone"),
        EventKind::Returned => tell!(GpuReturned, gpu, gpu_uuid; "GPU {gpu} is back"),
        EventKind::MigChange => tell!(PartsChanged, gpu, gpu_uuid; "{what} on GPU {gpu}"),
        EventKind::SingleBitEcc
        | EventKind::DoubleBitEcc
        | EventKind::SingleBitEccStorm
        | EventKind::MemoryRetired
        | EventKind::MemoryRetirementFailed
        | EventKind::NonFatalPoison
        | EventKind::FatalPoison
        | EventKind::Unavailable
        | EventKind::RecoveryAction
        | EventKind::Other(_) => tell!(DeviceEvent, gpu, gpu_uuid; "{what} on GPU {gpu}"),
    }
}

/// The interval that is set, or as many of it as an answer of a slow driver takes, and a quarter
/// more.
fn stretched(set: Duration, slowest: Option<Duration>) -> Duration {
    let Some(slowest) = slowest else {
        return set;
    };
    let wanted = (slowest + slowest / 4).min(MAX_STRETCHED).as_millis();
    let times = wanted.div_ceil(set.as_millis().max(1)).max(1);
    set.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
}

/// When ticks are due, and how many were late.
struct Schedule {
    /// By the steady clock.
    due: Duration,
    begun: u64,
    late: u64,
    /// Whether the last one began late.
    began_late: bool,
}

impl Schedule {
    fn starting(now: Duration) -> Self {
        Self {
            due: now,
            begun: 0,
            late: 0,
            began_late: false,
        }
    }

    fn wait(&self, now: Duration, at_most: Option<Duration>) -> Duration {
        let until_due = self.due.saturating_sub(now);
        at_most.map_or(until_due, |most| until_due.min(most))
    }

    fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// A shorter interval holds at once, and not when the longer one is over.
    fn hurry(&mut self, now: Duration, interval: Duration) {
        self.due = self.due.min(now + interval);
    }

    fn begin(&mut self, now: Duration, interval: Duration) {
        let behind = now.saturating_sub(self.due);
        self.begun += 1;
        self.began_late = behind > interval / 2;
        self.late += u64::from(self.began_late);
        // Ticks that were missed are not made up for.
        self.due = if behind > interval {
            now + interval
        } else {
            self.due + interval
        };
    }

    /// A driver did not answer the tick in time: that is late too.
    fn answered(&mut self, is_late: bool) {
        self.late += u64::from(is_late && !self.began_late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_shorter_interval_holds_at_once_and_a_longer_one_after_the_next_tick() {
        let start = 3_600 * SECOND;
        let mut schedule = Schedule::starting(start);
        schedule.begin(start, 3_600 * SECOND);
        schedule.hurry(start + SECOND, 2 * SECOND);
        assert_eq!(schedule.due, start + 3 * SECOND);
        schedule.hurry(start + SECOND, 3_600 * SECOND);
        assert_eq!(schedule.due, start + 3 * SECOND);
    }

    #[test]
    fn a_slow_driver_stretches_the_interval_by_whole_ones() {
        let (set, ms) = (2 * SECOND, Duration::from_millis);
        assert_eq!(stretched(set, None), set);
        assert_eq!(stretched(set, Some(ms(4_000))), 6 * SECOND);
        assert_eq!(stretched(set, Some(ms(4_900))), 8 * SECOND);
        assert_eq!(stretched(ms(100), Some(ms(4_000))), 5 * SECOND);
        assert_eq!(stretched(60 * SECOND, Some(ms(4_000))), 60 * SECOND);
        assert_eq!(stretched(set, Some(600 * SECOND)), MAX_STRETCHED);
        assert_eq!(stretched(Duration::ZERO, Some(SECOND)), Duration::ZERO);
    }

    #[test]
    fn a_tick_that_a_driver_did_not_answer_in_time_is_late_once() {
        let mut schedule = Schedule::starting(SECOND);
        schedule.begin(SECOND, SECOND);
        schedule.answered(true);
        assert_eq!(schedule.late, 1);
        schedule.begin(9 * SECOND, SECOND);
        schedule.answered(true);
        assert_eq!(schedule.late, 2);
        schedule.begin(10 * SECOND, SECOND);
        schedule.answered(false);
        assert_eq!(schedule.late, 2);
    }

    #[test]
    fn ticks_keep_their_rhythm_and_missed_ones_are_not_made_up_for() {
        let start = 3_600 * SECOND;
        let mut schedule = Schedule::starting(start);
        schedule.begin(start, SECOND);
        // A little late: the next is due when it would have been.
        schedule.begin(start + SECOND + SECOND / 10, SECOND);
        assert_eq!((schedule.due, schedule.late), (start + 2 * SECOND, 0));
        schedule.begin(start + 9 * SECOND, SECOND);
        assert_eq!(
            (schedule.due, schedule.begun, schedule.late),
            (start + 10 * SECOND, 3, 1)
        );
        assert!(!schedule.is_due(start + 9 * SECOND));
        assert_eq!(
            schedule.wait(start + 9 * SECOND, Some(SECOND / 4)),
            SECOND / 4
        );
    }
}
