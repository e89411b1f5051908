//! Runs a backend on a thread of its own, so that a stuck driver is a fault and
//! not a stall: whoever asks gets the newest readings there are, and their age.

use super::pace::Pace;
use super::{Backend, Failure, Readings};
use gpukill_proto::snapshot::{BackendState, GpuEvent};
use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// An answer that nobody has looked at is news for so long: no other is asked
/// for.
const YOUNG: Duration = Duration::from_millis(200);

/// A late answer is fresh for so long.
const RECENT: Duration = Duration::from_secs(5);

/// So many events wait to be looked at.
const MOST_EVENTS: usize = 1_000;

/// The asking side of a backend's thread. Dropping it ends the thread once the
/// backend returns.
pub(crate) struct Reader {
    name: &'static str,
    slot: Arc<Slot>,
    /// What it answers without a thread.
    absent: Option<Arc<Readings>>,
}

/// The newest of a backend.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latest {
    /// The last good readings, and when they were taken.
    pub(crate) readings: Option<(Arc<Readings>, Timestamp)>,
    /// What happened since somebody last looked, the oldest first.
    pub(crate) events: Vec<GpuEvent>,
    /// Why the last try gave none.
    pub(crate) failure: Option<Failure>,
    /// Whether this answers the round that was asked for.
    pub(crate) on_time: bool,
    /// Whether it is new: nobody has looked at it yet, and it came not long ago.
    /// A backend that is slow, but not slower than the polls, is fresh enough.
    pub(crate) recent: bool,
    /// How long its slowest answer took, while it answers slowly.
    pub(crate) slow: Option<Duration>,
}

impl Latest {
    /// Whether the readings can be shown and judged as they are.
    pub(crate) fn is_fresh(&self) -> bool {
        self.failure.is_none() && self.readings.is_some() && (self.on_time || self.recent)
    }

    /// Whether there are readings, and none for the round that was asked for.
    pub(crate) fn is_late(&self) -> bool {
        self.failure.is_none() && self.readings.is_some() && !self.is_fresh()
    }
}

#[derive(Default)]
struct Slot {
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

#[derive(Default)]
struct Rounds {
    /// The last round that was asked for, and the last that was answered. One
    /// answer serves all rounds that were asked for before it began.
    asked: u64,
    answered: u64,
    /// Whether the last round was asked for while an older one was still out.
    behind: bool,
    /// Whether an answer came that nobody has looked at yet.
    unseen: bool,
    /// When it came.
    arrived: Option<Instant>,
    /// Whether somebody has waited in vain for the answer that is out.
    missed: bool,
    latest: Latest,
    pace: Pace,
    ended: bool,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Rounds> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        let rounds = self.lock();
        rounds.answered == rounds.asked
    }

    /// Waits for a round to answer; `None` when there will be none any more.
    fn next_round(&self) -> Option<u64> {
        let mut rounds = self.lock();
        while rounds.asked == rounds.answered && !rounds.ended {
            rounds = self
                .changed
                .wait(rounds)
                .unwrap_or_else(PoisonError::into_inner);
        }
        (!rounds.ended).then_some(rounds.asked)
    }

    /// Takes an answer, which took so long; true when somebody waited for it in vain.
    fn answer(
        &self,
        round: u64,
        took: Duration,
        result: Result<Readings, Failure>,
        mut events: Vec<GpuEvent>,
    ) -> bool {
        let now = Timestamp::from(SystemTime::now());
        let mut rounds = self.lock();
        rounds.answered = round;
        rounds.unseen = true;
        rounds.arrived = Some(Instant::now());
        // What happened is told once, and also when nobody looked in time.
        rounds.latest.events.append(&mut events);
        let too_many = rounds.latest.events.len().saturating_sub(MOST_EVENTS);
        rounds.latest.events.drain(..too_many);
        match result {
            Ok(readings) => {
                // What is told instead, where a driver does not work, says nothing of its pace.
                let is_ready = |it: &Readings| it.state == BackendState::Ready;
                if is_ready(&readings) {
                    let Latest {
                        readings: before,
                        failure,
                        ..
                    } = &rounds.latest;
                    let had_answered = before.as_ref().is_some_and(|(it, _)| is_ready(it));
                    let is_usual = had_answered && failure.is_none();
                    rounds.pace.note(took, is_usual);
                }
                rounds.latest.readings = Some((Arc::new(readings), now));
                rounds.latest.failure = None;
            }
            Err(failure) => rounds.latest.failure = Some(failure),
        }
        self.changed.notify_all();
        std::mem::take(&mut rounds.missed)
    }
}

impl Reader {
    /// Starts the backend's thread. `late` is called when an answer comes for
    /// which somebody has waited in vain.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        mut backend: impl Backend,
        late: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let name = backend.name();
        let slot = Arc::new(Slot::default());
        let answers = Arc::clone(&slot);
        std::thread::Builder::new()
            .name(format!("read-{name}"))
            .spawn(move || {
                while let Some(round) = answers.next_round() {
                    let began = Instant::now();
                    let result = backend.read();
                    if answers.answer(round, began.elapsed(), result, backend.take_events()) {
                        late();
                    }
                }
            })?;
        Ok(Self {
            name,
            slot,
            absent: None,
        })
    }

    /// A backend that has nothing to read on this box, for this reason: it needs no thread.
    pub(crate) fn absent(name: &'static str, why: &str) -> Self {
        let readings = Readings::nothing(BackendState::Absent(why.to_owned()));
        Self {
            name,
            slot: Arc::default(),
            absent: Some(Arc::new(readings)),
        }
    }

    /// As in the configuration: `nvidia`.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Asks for new readings and returns at once.
    pub(crate) fn ask(&self) {
        let mut rounds = self.slot.lock();
        if let Some(readings) = &self.absent {
            let now = Timestamp::from(SystemTime::now());
            rounds.latest.readings = Some((Arc::clone(readings), now));
            return;
        }
        let is_young = rounds.arrived.is_some_and(|at| at.elapsed() < YOUNG);
        if rounds.unseen && is_young && rounds.answered == rounds.asked {
            // It came late, and this poll was hurried for its sake.
            rounds.behind = false;
            return;
        }
        rounds.behind = rounds.answered < rounds.asked;
        rounds.asked += 1;
        self.slot.changed.notify_all();
    }

    /// The answer to the last [`Self::ask`], or at `deadline` whatever there is.
    /// Does not wait for a backend that is still busy with an older question:
    /// one that is stuck is waited for once, and not at each poll.
    pub(crate) fn latest(&self, deadline: Instant) -> Latest {
        let mut rounds = self.slot.lock();
        while rounds.answered < rounds.asked && !rounds.behind {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            rounds = self
                .slot
                .changed
                .wait_timeout(rounds, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        rounds.missed = rounds.answered < rounds.asked;
        Latest {
            on_time: rounds.answered >= rounds.asked,
            recent: std::mem::take(&mut rounds.unseen)
                && rounds.arrived.is_some_and(|at| at.elapsed() < RECENT),
            slow: rounds.pace.slow(),
            events: std::mem::take(&mut rounds.latest.events),
            ..rounds.latest.clone()
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.slot.lock().ended = true;
        self.slot.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::snapshot::FaultCode;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Answers what it is told to, when it is told to.
    struct Told(Receiver<Result<Readings, Failure>>);

    impl Backend for Told {
        fn name(&self) -> &'static str {
            "told"
        }

        fn read(&mut self) -> Result<Readings, Failure> {
            self.0.recv().unwrap_or_else(|_| {
                Err(Failure::Failed(
                    FaultCode::DriverError,
                    "the test is over".into(),
                ))
            })
        }

        fn take_events(&mut self) -> Vec<GpuEvent> {
            Vec::new()
        }
    }

    fn no_driver() -> Failure {
        Failure::Failed(FaultCode::DriverError, "no driver".to_owned())
    }

    fn readings(cost_us: u64) -> Readings {
        Readings {
            cost_us,
            ..Readings::nothing(BackendState::Ready)
        }
    }

    fn told() -> (Sender<Result<Readings, Failure>>, Reader) {
        let (tell, answers) = channel();
        (tell, Reader::start(Told(answers), || {}).unwrap())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_backend_that_hangs_delays_nobody_and_its_old_readings_remain() {
        let (tell, reader) = told();
        tell.send(Ok(readings(1))).unwrap();
        reader.ask();
        assert!(reader.latest(soon()).on_time);

        reader.ask();
        let late = reader.latest(Instant::now());
        assert!(!late.is_fresh());
        assert_eq!(late.readings.map(|(r, _)| r.cost_us), Some(1));
        // Still stuck: nobody waits for it a second time.
        reader.ask();
        assert!(!reader.latest(soon()).is_fresh());

        tell.send(Ok(readings(2))).unwrap();
        tell.send(Ok(readings(3))).unwrap();
        while !reader.slot.is_idle() {
            std::thread::yield_now();
        }
        tell.send(Ok(readings(4))).unwrap();
        reader.ask();
        let recovered = reader.latest(soon());
        assert!(recovered.is_fresh());
        assert!(recovered.readings.is_some_and(|(r, _)| r.cost_us > 1));
    }

    #[test]
    fn an_answer_that_came_between_two_polls_is_fresh_in_the_second_and_no_longer() {
        let (tell, reader) = told();
        reader.ask();
        assert!(!reader.latest(Instant::now()).is_fresh());
        tell.send(Ok(readings(1))).unwrap();
        while !reader.slot.is_idle() {
            std::thread::yield_now();
        }
        // Nobody has looked at it: no other is asked for.
        reader.ask();
        assert!(reader.slot.is_idle());
        assert!(reader.latest(Instant::now()).is_fresh());
        reader.ask();
        assert!(!reader.latest(Instant::now()).is_fresh());
    }

    #[test]
    fn whoever_waited_in_vain_hears_of_the_answer_and_nobody_else() {
        let (hear, heard) = channel();
        let (tell, answers) = channel();
        let reader = Reader::start(Told(answers), move || hear.send(()).unwrap()).unwrap();
        reader.ask();
        assert!(!reader.latest(Instant::now()).is_fresh());
        tell.send(Ok(readings(1))).unwrap();
        assert!(heard.recv_timeout(Duration::from_secs(10)).is_ok());
        assert!(reader.latest(soon()).is_fresh());
        tell.send(Ok(readings(2))).unwrap();
        reader.ask();
        assert!(reader.latest(soon()).is_fresh());
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn a_backend_without_anything_to_read_answers_at_once() {
        let reader = Reader::absent("told", "no driver");
        for _ in 0..2 {
            reader.ask();
            let latest = reader.latest(soon());
            assert!(latest.is_fresh() && !latest.is_late());
            let state = latest.readings.map(|(readings, _)| readings.state.clone());
            assert_eq!(state, Some(BackendState::Absent("no driver".into())));
        }
    }

    #[test]
    fn a_failure_is_told_until_the_next_good_reading() {
        let (tell, reader) = told();
        for (answer, failure) in [
            (Ok(readings(1)), None),
            (Err(no_driver()), Some(no_driver())),
            (Ok(readings(2)), None),
        ] {
            tell.send(answer).unwrap();
            reader.ask();
            assert_eq!(reader.latest(soon()).failure, failure);
        }
    }
}
