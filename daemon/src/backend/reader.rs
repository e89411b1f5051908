//! Runs a backend on a thread of its own, so that a stuck driver is a fault and not a stall: a
//! caller gets the newest available readings, and their age.

use super::response_time::ResponseTime;
use super::{Backend, BackendError, BackendReadings};
use gpukill_proto::model::{BackendState, GpuEvent};
use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long an answer that was not collected counts as new: no other is requested.
const NEW_DURATION: Duration = Duration::from_millis(200);

/// How long a late answer counts as fresh.
const FRESH_DURATION: Duration = Duration::from_secs(5);

/// The number of events kept until they are collected.
const MAX_EVENTS: usize = 1_000;

/// The caller's side of a backend's thread. Dropping it ends the thread once the backend returns.
pub(crate) struct BackendReader {
    name: &'static str,
    slot: Arc<ReaderSlot>,
    /// The answer of a backend without a thread.
    absent: Option<Arc<BackendReadings>>,
}

/// The newest answer of a backend.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatestReadings {
    /// The last good readings, and when they were taken.
    pub(crate) readings: Option<(Arc<BackendReadings>, Timestamp)>,
    /// The events since the last call, oldest first.
    pub(crate) events: Vec<GpuEvent>,
    /// Why the last read failed.
    pub(crate) failure: Option<BackendError>,
    /// Whether this answers the requested round.
    pub(crate) on_time: bool,
    /// Whether the answer is new: it was not collected before, and arrived recently. A backend that
    /// is slow, but not slower than the polls, is fresh enough.
    pub(crate) is_recent: bool,
    /// The duration of the slowest answer, while the backend is slow.
    pub(crate) slowest_answer: Option<Duration>,
}

impl LatestReadings {
    /// Whether the readings can be shown and evaluated as current.
    pub(crate) fn is_fresh(&self) -> bool {
        self.failure.is_none() && self.readings.is_some() && (self.on_time || self.is_recent)
    }

    /// Whether there are readings, but none for the requested round.
    pub(crate) fn is_late(&self) -> bool {
        self.failure.is_none() && self.readings.is_some() && !self.is_fresh()
    }
}

#[derive(Default)]
struct ReaderSlot {
    rounds: Mutex<ReaderRounds>,
    changed: Condvar,
}

#[derive(Default)]
struct ReaderRounds {
    /// The last requested and the last answered round. One answer serves all rounds that were
    /// requested before it began.
    requested: u64,
    answered: u64,
    /// Whether the last round was requested while an older one was still unanswered.
    is_behind: bool,
    /// Whether an answer has not been collected yet.
    is_uncollected: bool,
    /// When it arrived.
    arrived: Option<Instant>,
    /// Whether a caller has timed out waiting for the pending answer.
    has_timed_out: bool,
    latest: LatestReadings,
    response_time: ResponseTime,
    ended: bool,
}

impl ReaderSlot {
    fn lock(&self) -> MutexGuard<'_, ReaderRounds> {
        // No code panics while it holds this lock; if one did, the values in it would still be
        // consistent.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        let rounds = self.lock();
        rounds.answered == rounds.requested
    }

    /// Waits for a round to answer; `None` after the end.
    fn wait_for_round(&self) -> Option<u64> {
        let mut rounds = self.lock();
        while rounds.requested == rounds.answered && !rounds.ended {
            rounds = self
                .changed
                .wait(rounds)
                .unwrap_or_else(PoisonError::into_inner);
        }
        (!rounds.ended).then_some(rounds.requested)
    }

    /// Stores an answer and its duration; true if a caller timed out waiting for it.
    fn store_answer(
        &self,
        round: u64,
        took: Duration,
        result: Result<BackendReadings, BackendError>,
        mut events: Vec<GpuEvent>,
    ) -> bool {
        let now = Timestamp::from(SystemTime::now());
        let mut rounds = self.lock();
        rounds.answered = round;
        rounds.is_uncollected = true;
        rounds.arrived = Some(Instant::now());
        // An event is returned once, even if no caller was in time for it.
        rounds.latest.events.append(&mut events);
        let too_many = rounds.latest.events.len().saturating_sub(MAX_EVENTS);
        rounds.latest.events.drain(..too_many);
        match result {
            Ok(readings) => {
                // The substitute answer of a driver that does not work says nothing about its
                // speed.
                let is_ready = |readings: &BackendReadings| readings.state == BackendState::Ready;
                if is_ready(&readings) {
                    let LatestReadings {
                        readings: before,
                        failure,
                        ..
                    } = &rounds.latest;
                    let had_answered = before.as_ref().is_some_and(|(it, _)| is_ready(it));
                    let is_usual = had_answered && failure.is_none();
                    rounds.response_time.record(took, is_usual);
                }
                rounds.latest.readings = Some((Arc::new(readings), now));
                rounds.latest.failure = None;
            }
            Err(failure) => rounds.latest.failure = Some(failure),
        }
        self.changed.notify_all();
        std::mem::take(&mut rounds.has_timed_out)
    }
}

impl BackendReader {
    /// Starts the backend's thread. `late` is called when an answer arrives after a caller has
    /// timed out waiting for it.
    pub(crate) fn start(
        mut backend: impl Backend,
        late: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let name = backend.name();
        let slot = Arc::new(ReaderSlot::default());
        let answers = Arc::clone(&slot);
        std::thread::Builder::new()
            .name(format!("read-{name}"))
            .spawn(move || {
                while let Some(round) = answers.wait_for_round() {
                    let start = Instant::now();
                    let result = backend.read();
                    if answers.store_answer(round, start.elapsed(), result, backend.take_events()) {
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

    /// A backend that has nothing to read on this host, for this reason: it needs no thread.
    pub(crate) fn absent(name: &'static str, why: &str) -> Self {
        let readings = BackendReadings::without_devices(BackendState::Absent(why.to_owned()));
        Self {
            name,
            slot: Arc::default(),
            absent: Some(Arc::new(readings)),
        }
    }

    /// The name used in the configuration, such as `nvidia`.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Requests new readings and returns at once.
    pub(crate) fn request(&self) {
        let mut rounds = self.slot.lock();
        if let Some(readings) = &self.absent {
            let now = Timestamp::from(SystemTime::now());
            rounds.latest.readings = Some((Arc::clone(readings), now));
            return;
        }
        let is_recent = rounds.arrived.is_some_and(|at| at.elapsed() < NEW_DURATION);
        if rounds.is_uncollected && is_recent && rounds.answered == rounds.requested {
            // The answer came late, and started this poll early.
            rounds.is_behind = false;
            return;
        }
        rounds.is_behind = rounds.answered < rounds.requested;
        rounds.requested += 1;
        self.slot.changed.notify_all();
    }

    /// The answer to the last [`Self::request`], or the newest one at `deadline`. Does not wait for
    /// a backend that is still busy with an older request: a stuck backend delays one poll, not
    /// each.
    pub(crate) fn latest(&self, deadline: Instant) -> LatestReadings {
        let mut rounds = self.slot.lock();
        while rounds.answered < rounds.requested && !rounds.is_behind {
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
        rounds.has_timed_out = rounds.answered < rounds.requested;
        LatestReadings {
            on_time: rounds.answered >= rounds.requested,
            is_recent: std::mem::take(&mut rounds.is_uncollected)
                && rounds
                    .arrived
                    .is_some_and(|at| at.elapsed() < FRESH_DURATION),
            slowest_answer: rounds.response_time.slowest(),
            events: std::mem::take(&mut rounds.latest.events),
            ..rounds.latest.clone()
        }
    }
}

impl Drop for BackendReader {
    fn drop(&mut self) {
        self.slot.lock().ended = true;
        self.slot.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::FaultCode;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Answers with what a test sends, when the test sends it.
    struct ScriptedBackend(Receiver<Result<BackendReadings, BackendError>>);

    impl Backend for ScriptedBackend {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn read(&mut self) -> Result<BackendReadings, BackendError> {
            self.0.recv().unwrap_or_else(|_| {
                Err(BackendError::Failed(
                    FaultCode::DriverError,
                    "the test is over".into(),
                ))
            })
        }
    }

    fn no_driver() -> BackendError {
        BackendError::Failed(FaultCode::DriverError, "no driver".to_owned())
    }

    fn readings(cost_us: u64) -> BackendReadings {
        BackendReadings {
            cost_us,
            ..BackendReadings::without_devices(BackendState::Ready)
        }
    }

    fn scripted_reader() -> (Sender<Result<BackendReadings, BackendError>>, BackendReader) {
        let (tell, answers) = channel();
        (
            tell,
            BackendReader::start(ScriptedBackend(answers), || {}).unwrap(),
        )
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn hung_backend_delays_once_and_keeps_readings() {
        let (tell, reader) = scripted_reader();
        tell.send(Ok(readings(1))).unwrap();
        reader.request();
        assert!(reader.latest(soon()).on_time);

        reader.request();
        let late = reader.latest(Instant::now());
        assert!(!late.is_fresh());
        assert_eq!(late.readings.map(|(r, _)| r.cost_us), Some(1));
        // Still stuck: no second wait.
        reader.request();
        assert!(!reader.latest(soon()).is_fresh());

        tell.send(Ok(readings(2))).unwrap();
        tell.send(Ok(readings(3))).unwrap();
        while !reader.slot.is_idle() {
            std::thread::yield_now();
        }
        tell.send(Ok(readings(4))).unwrap();
        reader.request();
        let recovered = reader.latest(soon());
        assert!(recovered.is_fresh());
        assert!(recovered.readings.is_some_and(|(r, _)| r.cost_us > 1));
    }

    #[test]
    fn late_answer_is_fresh_for_one_poll() {
        let (tell, reader) = scripted_reader();
        reader.request();
        assert!(!reader.latest(Instant::now()).is_fresh());
        tell.send(Ok(readings(1))).unwrap();
        while !reader.slot.is_idle() {
            std::thread::yield_now();
        }
        // The answer was not collected yet, so no other is requested.
        reader.request();
        assert!(reader.slot.is_idle());
        assert!(reader.latest(Instant::now()).is_fresh());
        reader.request();
        assert!(!reader.latest(Instant::now()).is_fresh());
    }

    #[test]
    fn late_callback_runs_only_after_a_timeout() {
        let (hear, heard) = channel();
        let (tell, answers) = channel();
        let reader =
            BackendReader::start(ScriptedBackend(answers), move || hear.send(()).unwrap()).unwrap();
        reader.request();
        assert!(!reader.latest(Instant::now()).is_fresh());
        tell.send(Ok(readings(1))).unwrap();
        assert!(heard.recv_timeout(Duration::from_secs(10)).is_ok());
        assert!(reader.latest(soon()).is_fresh());
        tell.send(Ok(readings(2))).unwrap();
        reader.request();
        assert!(reader.latest(soon()).is_fresh());
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn absent_backend_answers_at_once() {
        let reader = BackendReader::absent("scripted", "no driver");
        for _ in 0..2 {
            reader.request();
            let latest = reader.latest(soon());
            assert!(latest.is_fresh() && !latest.is_late());
            let state = latest.readings.map(|(readings, _)| readings.state.clone());
            assert_eq!(state, Some(BackendState::Absent("no driver".into())));
        }
    }

    #[test]
    fn failure_lasts_until_the_next_success() {
        let (tell, reader) = scripted_reader();
        for (answer, failure) in [
            (Ok(readings(1)), None),
            (Err(no_driver()), Some(no_driver())),
            (Ok(readings(2)), None),
        ] {
            tell.send(answer).unwrap();
            reader.request();
            assert_eq!(reader.latest(soon()).failure, failure);
        }
    }
}
