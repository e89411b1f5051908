//! Turns current faults into entries of the record: when each started and when it ended. A fault
//! that flaps is counted, and recorded less often the longer it flaps.

use super::{Store, WriterCommand, truncate};
use crate::log_events::event;
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use gpukill_proto::model::{DeviceId, Fault, FaultCode, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::TrySendError;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long repeats are counted before they are recorded, at first and at most.
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The most faults that may start in an hour; further ones are only counted, because the text of a
/// fault may contain a number that changes each time.
const MAX_PER_HOUR: u64 = 240;

/// The most changes that wait for space in the queue.
const MAX_WAITING: usize = 1_000;

/// The length of the text that distinguishes faults, in bytes.
const MAX_KEY_BYTES: usize = 1 << 10;

/// A fault that started or ended, once or several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultChange {
    /// The first time.
    pub(crate) at: Timestamp,
    pub(crate) part: String,
    /// The device, if it is about one.
    pub(crate) device: Option<DeviceId>,
    pub(crate) code: FaultCode,
    pub(crate) what: String,
    pub(crate) is_over: bool,
    pub(crate) times: u64,
}

type FaultKey = (String, FaultCode, String);

/// A fault with a recorded start.
struct LoggedFault {
    is_present: bool,
    /// Whether its last end was recorded, too.
    is_end_recorded: bool,
    /// Since when repeats are counted, and for how long.
    window_start: Instant,
    window: Duration,
    /// How often the fault restarted in this window, and when first.
    repeats: u64,
    first_repeat_at: Timestamp,
    ended_at: Timestamp,
}

/// The faults of the last hour, and the changes still to be recorded.
#[derive(Default)]
pub(super) struct FaultLog {
    logged: BTreeMap<FaultKey, LoggedFault>,
    waiting: Vec<FaultChange>,
    /// The start of the current hour, and the number of faults that started in it and were
    /// recorded, or only counted.
    hour_start: Option<Instant>,
    starts_in_hour: u64,
    only_counted: u64,
    first_counted_at: Timestamp,
}

impl FaultLog {
    /// Takes the faults present at this moment; returns the changes to record.
    pub(super) fn update(
        &mut self,
        present: &[Fault],
        at: Timestamp,
        now: Instant,
    ) -> Vec<FaultChange> {
        self.roll_hour(now);
        let names: BTreeSet<FaultKey> = present.iter().map(fault_key).into_set();
        for fault in present {
            self.add_fault(fault, at, now);
        }
        for (name, known) in &mut self.logged {
            if known.is_present && !names.contains(name) {
                (known.is_present, known.ended_at) = (false, at);
            }
        }
        self.queue_due(Some(now));
        std::mem::take(&mut self.waiting)
    }

    /// Returns all unrecorded changes: no more will follow.
    pub(super) fn drain(&mut self) -> Vec<FaultChange> {
        self.queue_due(None);
        self.queue_counted();
        std::mem::take(&mut self.waiting)
    }

    /// Takes back changes that found no space in the queue.
    pub(super) fn put_back(&mut self, mut changes: Vec<FaultChange>) {
        changes.append(&mut self.waiting);
        if changes.len() > MAX_WAITING {
            let lost = changes.len() - MAX_WAITING;
            event!(NotRecorded, count = lost; "the queue for faults is full: not recorded");
            changes.truncate(MAX_WAITING);
        }
        self.waiting = changes;
    }

    fn roll_hour(&mut self, now: Instant) {
        let is_within_hour = |since: Instant| now.saturating_duration_since(since) < HOUR;
        if !self.hour_start.is_some_and(is_within_hour) {
            (self.hour_start, self.starts_in_hour) = (Some(now), 0);
            self.queue_counted();
        }
    }

    fn queue_counted(&mut self) {
        let times = std::mem::take(&mut self.only_counted);
        if times > 0 {
            self.waiting.push(FaultChange {
                at: self.first_counted_at,
                part: "faults".into(),
                device: None,
                code: FaultCode::FaultsUnrecorded,
                what: "more faults started than are recorded individually".into(),
                is_over: false,
                times,
            });
        }
    }

    fn add_fault(&mut self, fault: &Fault, at: Timestamp, now: Instant) {
        let name = fault_key(fault);
        if let Some(known) = self.logged.get_mut(&name) {
            if !known.is_present {
                known.is_present = true;
                if known.repeats == 0 {
                    known.first_repeat_at = fault.since;
                }
                known.repeats = known.repeats.saturating_add(1);
            }
            return;
        }
        if self.starts_in_hour >= MAX_PER_HOUR {
            // A fault that lasts is recorded in the next hour; it is counted once.
            if fault.since >= at {
                if self.only_counted == 0 {
                    self.first_counted_at = at;
                }
                self.only_counted = self.only_counted.saturating_add(1);
            }
            return;
        }
        self.starts_in_hour += 1;
        self.waiting
            .push(fault_change(&name, fault.since, false, 1));
        let known = LoggedFault {
            is_present: true,
            is_end_recorded: false,
            window_start: now,
            window: MINUTE,
            repeats: 0,
            first_repeat_at: fault.since,
            ended_at: fault.since,
        };
        self.logged.insert(name, known);
    }

    /// Queues what is due, or everything if `now` is `None`. The end of a fault that lasted is
    /// queued at once, everything else at the end of its counting window.
    fn queue_due(&mut self, now: Option<Instant>) {
        let waiting = &mut self.waiting;
        self.logged.retain_entries(|name, known| {
            let is_due = now.is_none_or(|now| {
                now.saturating_duration_since(known.window_start) >= known.window
            });
            let has_repeated = known.repeats > 0;
            if !is_due || (known.is_present && !has_repeated) {
                return true;
            }
            if has_repeated {
                waiting.push(fault_change(
                    name,
                    known.first_repeat_at,
                    false,
                    known.repeats,
                ));
            }
            if !known.is_present && (has_repeated || !known.is_end_recorded) {
                waiting.push(fault_change(name, known.ended_at, true, 1));
            }
            if let Some(now) = now {
                known.window_start = now;
                known.window = (known.window * 2).min(HOUR);
            }
            (known.repeats, known.is_end_recorded) = (0, !known.is_present);
            has_repeated
        });
    }
}

impl Store {
    /// Records the faults that started or ended, without waiting.
    pub(crate) fn record_fault_changes(&self, snapshot: &Snapshot) {
        let mut log = self.lock_fault_log();
        let mut changes = log.update(&snapshot.faults, snapshot.taken_at, Instant::now());
        for change in &mut changes {
            let index: Option<u32> = change
                .part
                .strip_prefix("GPU ")
                .and_then(|index| index.parse().ok());
            let device = snapshot.devices.iter().find(|it| Some(it.index) == index);
            change.device = change.device.take().or(device.map(|it| it.id.clone()));
        }
        self.send_fault_changes(&mut log, changes);
    }

    /// Records all unrecorded changes: no more will follow.
    pub(super) fn record_pending_faults(&self) {
        let mut log = self.lock_fault_log();
        let rest = log.drain();
        self.send_fault_changes(&mut log, rest);
    }

    /// No code panics while it holds this lock; even then the contents would be consistent.
    fn lock_fault_log(&self) -> MutexGuard<'_, FaultLog> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_fault_changes(&self, log: &mut FaultLog, changes: Vec<FaultChange>) {
        if changes.is_empty() {
            return;
        }
        match self.commands.try_send(WriterCommand::Faults(changes)) {
            Err(TrySendError::Full(WriterCommand::Faults(changes))) => log.put_back(changes),
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

fn fault_key(fault: &Fault) -> FaultKey {
    (
        fault.part.clone(),
        fault.code,
        truncate::text(fault.what.clone(), MAX_KEY_BYTES),
    )
}

fn fault_change(
    (part, code, what): &FaultKey,
    at: Timestamp,
    is_over: bool,
    times: u64,
) -> FaultChange {
    FaultChange {
        at,
        part: part.clone(),
        device: None,
        code: *code,
        what: what.clone(),
        is_over,
        times,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(what: &str, since: u64) -> Fault {
        Fault {
            part: "store".into(),
            code: FaultCode::DiskFull,
            what: what.into(),
            since: Timestamp(i64::try_from(since).unwrap()),
        }
    }

    /// When each change happened, whether it is an end, and how often.
    fn change_rows(changes: Vec<FaultChange>) -> Vec<(i64, &'static str, u64)> {
        let words = |change: &FaultChange| if change.is_over { "over" } else { "began" };
        let row = |change: FaultChange| (change.at.0, words(&change), change.times);
        changes.into_iter().map(row).collect()
    }

    /// A log with a manual clock.
    struct TimedFaultLog {
        log: FaultLog,
        start: Instant,
    }

    impl TimedFaultLog {
        fn new() -> Self {
            Self {
                log: FaultLog::default(),
                start: Instant::now(),
            }
        }

        fn changes_at(&mut self, second: u64, present: &[Fault]) -> Vec<(i64, &'static str, u64)> {
            let now = self.start + Duration::from_secs(second);
            let at = Timestamp(i64::try_from(second).unwrap());
            change_rows(self.log.update(present, at, now))
        }
    }

    #[test]
    fn records_start_and_end() {
        let mut log = TimedFaultLog::new();
        assert_eq!(log.changes_at(0, &[]), []);
        assert_eq!(log.changes_at(2, &[fault("full", 2)]), [(2, "began", 1)]);
        for second in [4, 100, 5_000] {
            assert_eq!(log.changes_at(second, &[fault("full", 2)]), []);
        }
        assert_eq!(log.changes_at(5_002, &[]), [(5_002, "over", 1)]);
        assert_eq!(log.changes_at(9_000, &[]), []);
        assert_eq!(
            log.changes_at(9_002, &[fault("full", 9_002)]),
            [(9_002, "began", 1)]
        );
    }

    #[test]
    fn short_fault_ends_a_minute_later() {
        let mut log = TimedFaultLog::new();
        assert_eq!(log.changes_at(0, &[fault("full", 0)]), [(0, "began", 1)]);
        assert_eq!(log.changes_at(2, &[]), []);
        assert_eq!(log.changes_at(59, &[]), []);
        assert_eq!(log.changes_at(60, &[]), [(2, "over", 1)]);
        assert!(log.log.logged.is_empty());
    }

    #[test]
    fn flapping_is_recorded_rarely_and_completely() {
        let mut log = TimedFaultLog::new();
        let (mut rows, mut beginnings) = (Vec::new(), 0);
        for second in 0..86_400 {
            let is_there = second % 2 == 0;
            beginnings += u64::from(is_there);
            let present = [fault("full", second)];
            rows.extend(log.changes_at(second, if is_there { &present } else { &[] }));
        }
        rows.extend(change_rows(log.log.drain()));
        assert!(rows.len() < 70, "{}", rows.len());
        let starts = rows.iter().filter(|(_, what, _)| *what == "began");
        assert_eq!(starts.map(|(_, _, times)| times).sum::<u64>(), beginnings);
        assert_eq!(rows.last(), Some(&(86_399, "over", 1)));
        // After a quiet time the violation is recorded at once again.
        assert_eq!(log.changes_at(100_000, &[]), []);
        assert_eq!(
            log.changes_at(200_000, &[fault("full", 200_000)]),
            [(200_000, "began", 1)]
        );
    }

    #[test]
    fn changing_texts_are_only_counted() {
        let mut log = TimedFaultLog::new();
        let mut rows = Vec::new();
        for second in 0..3_600 {
            rows.extend(log.changes_at(second, &[fault(&format!("{second} left"), second)]));
        }
        let starts = rows.iter().filter(|(_, what, _)| *what == "began");
        assert_eq!(starts.count() as u64, MAX_PER_HOUR);
        let next = log.changes_at(3_600, &[]);
        let counted = 3_600 - MAX_PER_HOUR;
        assert_eq!(next, [(240, "began", counted)]);
        assert_eq!(log.changes_at(7_300, &[]), []);
        assert!(log.log.logged.is_empty());
    }

    #[test]
    fn put_back_changes_return_up_to_a_limit() {
        let mut log = TimedFaultLog::new();
        let now = log.start;
        let first = log.log.update(&[fault("full", 1)], Timestamp(1), now);
        log.log.put_back(first.clone());
        assert_eq!(
            log.log.update(&[fault("full", 1)], Timestamp(2), now),
            first
        );
        log.log.put_back(vec![first[0].clone(); MAX_WAITING + 5]);
        assert_eq!(log.log.waiting.len(), MAX_WAITING);
    }
}
