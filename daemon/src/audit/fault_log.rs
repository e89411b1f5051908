//! Faults on their way to the record: when each began, and when it was over. One
//! that comes and goes is counted, and told the more seldom the longer it flaps.

use super::{Order, Store, cut};
use crate::catalogue::tell;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::{Fault, FaultCode, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::TrySendError;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long repeats are counted before they are told, at first and at most.
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// So many faults may begin in an hour before they are only counted: their words
/// may hold a number that is another each time.
const MOST_IN_AN_HOUR: u64 = 240;

/// The most that waits for a place in the queue.
const MOST_WAITING: usize = 1_000;

/// The most of a fault's words that tell it from others, in bytes.
const MOST_WORDS: usize = 1 << 10;

/// A fault that began, or was over; or several times of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultChange {
    /// The first time.
    pub(super) at: Timestamp,
    pub(super) part: String,
    pub(super) code: FaultCode,
    pub(super) what: String,
    pub(super) is_over: bool,
    pub(super) times: u64,
}

type Name = (String, FaultCode, String);

/// A fault whose beginning is told.
struct Known {
    is_there: bool,
    /// Whether its last end is told, too.
    is_told_over: bool,
    /// Since when repeats are counted, and for how long.
    since: Instant,
    window: Duration,
    /// How often it began anew meanwhile, and when first.
    again: u64,
    again_at: Timestamp,
    over_at: Timestamp,
}

/// The faults of the last hour, and what is to be recorded of them.
#[derive(Default)]
pub(super) struct FaultLog {
    known: BTreeMap<Name, Known>,
    waiting: Vec<FaultChange>,
    /// The faults that began in this hour and are told, and those that are not.
    hour: Option<Instant>,
    begun: u64,
    only_counted: u64,
    first_counted_at: Timestamp,
}

impl FaultLog {
    /// Takes the faults that are present at this moment; gives what is to be
    /// recorded.
    pub(super) fn follow(
        &mut self,
        present: &[Fault],
        at: Timestamp,
        now: Instant,
    ) -> Vec<FaultChange> {
        self.begin_an_hour(now);
        let names: BTreeSet<Name> = present.iter().map(name).into_set();
        for fault in present {
            self.begin(fault, at, now);
        }
        for (name, known) in &mut self.known {
            if known.is_there && !names.contains(name) {
                (known.is_there, known.over_at) = (false, at);
            }
        }
        self.tell(Some(now));
        std::mem::take(&mut self.waiting)
    }

    /// All that was not told yet: nothing comes after it.
    pub(super) fn rest(&mut self) -> Vec<FaultChange> {
        self.tell(None);
        self.tell_counted();
        std::mem::take(&mut self.waiting)
    }

    /// Takes back what found no place in the queue.
    pub(super) fn put_back(&mut self, mut changes: Vec<FaultChange>) {
        changes.append(&mut self.waiting);
        if changes.len() > MOST_WAITING {
            let lost = changes.len() - MOST_WAITING;
            tell!(NotRecorded, count = lost; "the store does not take faults: not recorded");
            changes.truncate(MOST_WAITING);
        }
        self.waiting = changes;
    }

    fn begin_an_hour(&mut self, now: Instant) {
        let goes_on = |since: Instant| now.saturating_duration_since(since) < HOUR;
        if !self.hour.is_some_and(goes_on) {
            (self.hour, self.begun) = (Some(now), 0);
            self.tell_counted();
        }
    }

    fn tell_counted(&mut self) {
        let times = std::mem::take(&mut self.only_counted);
        if times > 0 {
            self.waiting.push(FaultChange {
                at: self.first_counted_at,
                part: "faults".into(),
                code: FaultCode::FaultsUnrecorded,
                what: "more began than are recorded one by one".into(),
                is_over: false,
                times,
            });
        }
    }

    fn begin(&mut self, fault: &Fault, at: Timestamp, now: Instant) {
        let name = name(fault);
        if let Some(known) = self.known.get_mut(&name) {
            if !known.is_there {
                known.is_there = true;
                if known.again == 0 {
                    known.again_at = fault.since;
                }
                known.again = known.again.saturating_add(1);
            }
            return;
        }
        if self.begun >= MOST_IN_AN_HOUR {
            // One that lasts is told in the next hour; it is counted once.
            if fault.since >= at {
                if self.only_counted == 0 {
                    self.first_counted_at = at;
                }
                self.only_counted = self.only_counted.saturating_add(1);
            }
            return;
        }
        self.begun += 1;
        self.waiting.push(change(&name, fault.since, false, 1));
        let known = Known {
            is_there: true,
            is_told_over: false,
            since: now,
            window: MINUTE,
            again: 0,
            again_at: fault.since,
            over_at: fault.since,
        };
        self.known.insert(name, known);
    }

    /// What is due, or all where there is no later. The end of one that lasted is
    /// told at once, and everything else when the time is over in which it was
    /// counted.
    fn tell(&mut self, now: Option<Instant>) {
        let waiting = &mut self.waiting;
        self.known.retain(|name, known| {
            let is_due =
                now.is_none_or(|now| now.saturating_duration_since(known.since) >= known.window);
            let has_flapped = known.again > 0;
            if !is_due || (known.is_there && !has_flapped) {
                return true;
            }
            if has_flapped {
                waiting.push(change(name, known.again_at, false, known.again));
            }
            if !known.is_there && (has_flapped || !known.is_told_over) {
                waiting.push(change(name, known.over_at, true, 1));
            }
            if let Some(now) = now {
                known.since = now;
                known.window = (known.window * 2).min(HOUR);
            }
            (known.again, known.is_told_over) = (0, !known.is_there);
            has_flapped
        });
    }
}

impl Store {
    /// Records the faults that began and those that are over, without ever waiting.
    pub(crate) fn follow_faults(&self, snapshot: &Snapshot) {
        let mut log = self.fault_log();
        let changes = log.follow(&snapshot.faults, snapshot.taken_at, Instant::now());
        self.record_faults(&mut log, changes);
    }

    /// Records what is known and was not told yet: nothing comes after it.
    pub(super) fn record_rest_of_faults(&self) {
        let mut log = self.fault_log();
        let rest = log.rest();
        self.record_faults(&mut log, rest);
    }

    /// Nothing panics while it holds this lock; if something did, what is in it is
    /// whole all the same.
    fn fault_log(&self) -> MutexGuard<'_, FaultLog> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_faults(&self, log: &mut FaultLog, changes: Vec<FaultChange>) {
        if changes.is_empty() {
            return;
        }
        match self.orders.try_send(Order::Faults(changes)) {
            Err(TrySendError::Full(Order::Faults(changes))) => log.put_back(changes),
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

fn name(fault: &Fault) -> Name {
    (
        fault.part.clone(),
        fault.code,
        cut::text(fault.what.clone(), MOST_WORDS),
    )
}

fn change((part, code, what): &Name, at: Timestamp, is_over: bool, times: u64) -> FaultChange {
    FaultChange {
        at,
        part: part.clone(),
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

    /// What is told of it: when, whether it is over, and how often.
    fn told(changes: Vec<FaultChange>) -> Vec<(i64, &'static str, u64)> {
        let words = |change: &FaultChange| if change.is_over { "over" } else { "began" };
        let row = |change: FaultChange| (change.at.0, words(&change), change.times);
        changes.into_iter().map(row).collect()
    }

    /// A log at which seconds pass.
    struct Told {
        log: FaultLog,
        start: Instant,
    }

    impl Told {
        fn new() -> Self {
            Self {
                log: FaultLog::default(),
                start: Instant::now(),
            }
        }

        /// What is told at this second, when these faults are present.
        fn at(&mut self, second: u64, present: &[Fault]) -> Vec<(i64, &'static str, u64)> {
            let now = self.start + Duration::from_secs(second);
            let at = Timestamp(i64::try_from(second).unwrap());
            told(self.log.follow(present, at, now))
        }
    }

    #[test]
    fn a_fault_that_lasts_is_told_when_it_begins_and_when_it_is_over() {
        let mut log = Told::new();
        assert_eq!(log.at(0, &[]), []);
        assert_eq!(log.at(2, &[fault("full", 2)]), [(2, "began", 1)]);
        for second in [4, 100, 5_000] {
            assert_eq!(log.at(second, &[fault("full", 2)]), []);
        }
        assert_eq!(log.at(5_002, &[]), [(5_002, "over", 1)]);
        assert_eq!(log.at(9_000, &[]), []);
        assert_eq!(
            log.at(9_002, &[fault("full", 9_002)]),
            [(9_002, "began", 1)]
        );
    }

    #[test]
    fn a_short_fault_is_told_to_be_over_a_minute_later_with_its_own_time() {
        let mut log = Told::new();
        assert_eq!(log.at(0, &[fault("full", 0)]), [(0, "began", 1)]);
        assert_eq!(log.at(2, &[]), []);
        assert_eq!(log.at(59, &[]), []);
        assert_eq!(log.at(60, &[]), [(2, "over", 1)]);
        assert!(log.log.known.is_empty());
    }

    #[test]
    fn a_fault_that_flaps_all_day_is_told_seldom_and_none_of_it_is_lost() {
        let mut log = Told::new();
        let (mut rows, mut beginnings) = (Vec::new(), 0);
        for second in 0..86_400 {
            let is_there = second % 2 == 0;
            beginnings += u64::from(is_there);
            let present = [fault("full", second)];
            rows.extend(log.at(second, if is_there { &present } else { &[] }));
        }
        rows.extend(told(log.log.rest()));
        assert!(rows.len() < 70, "{}", rows.len());
        let began = rows.iter().filter(|(_, what, _)| *what == "began");
        assert_eq!(began.map(|(_, _, times)| times).sum::<u64>(), beginnings);
        assert_eq!(rows.last(), Some(&(86_399, "over", 1)));
        // It is told of at once again after a quiet time.
        assert_eq!(log.at(100_000, &[]), []);
        assert_eq!(
            log.at(200_000, &[fault("full", 200_000)]),
            [(200_000, "began", 1)]
        );
    }

    #[test]
    fn words_that_are_others_each_time_are_only_counted_in_the_end() {
        let mut log = Told::new();
        let mut rows = Vec::new();
        for second in 0..3_600 {
            rows.extend(log.at(second, &[fault(&format!("{second} left"), second)]));
        }
        let began = rows.iter().filter(|(_, what, _)| *what == "began");
        assert_eq!(began.count() as u64, MOST_IN_AN_HOUR);
        let next = log.at(3_600, &[]);
        let counted = 3_600 - MOST_IN_AN_HOUR;
        assert_eq!(next, [(240, "began", counted)]);
        assert_eq!(log.at(7_300, &[]), []);
        assert!(log.log.known.is_empty());
    }

    #[test]
    fn what_finds_no_place_is_given_again_and_the_first_of_it_kept() {
        let mut log = Told::new();
        let now = log.start;
        let first = log.log.follow(&[fault("full", 1)], Timestamp(1), now);
        log.log.put_back(first.clone());
        assert_eq!(
            log.log.follow(&[fault("full", 1)], Timestamp(2), now),
            first
        );
        log.log.put_back(vec![first[0].clone(); MOST_WAITING + 5]);
        assert_eq!(log.log.waiting.len(), MOST_WAITING);
    }
}
