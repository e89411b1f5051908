//! Calls to the daemon that requests make, beside the long poll: few at a time, and one for all
//! requests that want the same at about the same time.
//!
//! A call goes on when its client is gone: its answer serves the next client, and clients that come
//! and go cannot make the daemon do the same work many times.

use crate::daemon::DaemonConnection;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::upstream::DaemonView;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The most calls at once. The daemon grants a user 8 connections, and the long poll is one.
const MAX_CALLS: usize = 4;

/// The most slow calls among them, so that quick calls find a free turn.
const MAX_SLOW_CALLS: usize = 2;

/// How long a call waits for its turn.
const MAX_QUEUED: Duration = Duration::from_secs(5);

/// How long a failure is given to later requests, so that each of them does not wait as long again.
const KEEP_FAILURE: Duration = Duration::from_secs(1);

/// The most answers that are kept, and the most different calls that wait.
const MAX_KEPT: usize = 64;

/// The most bytes of all answers that are kept.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// A longer answer is given to the requests that wait for it, and is not kept.
const MAX_KEPT_ANSWER: usize = 1 << 20;

/// Makes the call of a route and turns its answer into a document.
pub(crate) type CallFn = fn(&mut CallContext, &Parameters) -> Result<Document, Problem>;

/// A call of the daemon, by way of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRoute {
    /// How long its answer is given to later requests. A call may cost the daemon a scan.
    pub(crate) keep: Duration,
    /// How long the daemon may take.
    pub(crate) timeout: Duration,
    /// Whether the daemon may take seconds: it scans all processes, or reads the history.
    pub(crate) is_slow: bool,
    pub(crate) run: CallFn,
}

/// What a call is made with.
pub(crate) struct CallContext {
    /// A connection of its own.
    pub(crate) daemon: DaemonConnection,
    /// What is known of the daemon from the long poll.
    pub(crate) view: Arc<DaemonView>,
}

/// The answer of a call, or why there is none.
type Answer = Result<Arc<Document>, Problem>;

/// Where requests wait for an answer; `None` until the call has ended.
type Waiting = watch::Receiver<Option<Answer>>;

/// Makes calls to the daemon. A clone shares turns and answers.
#[derive(Clone)]
pub(crate) struct Calls {
    socket: PathBuf,
    turns: Arc<Semaphore>,
    slow_turns: Arc<Semaphore>,
    kept: Arc<Mutex<KeptAnswers>>,
}

/// The right to make a call, until it is dropped.
struct Turn {
    _slow: Option<OwnedSemaphorePermit>,
    _turn: OwnedSemaphorePermit,
}

impl Calls {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            turns: Arc::new(Semaphore::new(MAX_CALLS)),
            slow_turns: Arc::new(Semaphore::new(MAX_SLOW_CALLS)),
            kept: Arc::default(),
        }
    }

    /// Makes a call, waits for the same call of another request, or returns the answer that another
    /// request got a moment ago. `path` is the pattern of the route.
    ///
    /// # Errors
    /// The daemon refuses or does not answer, or there are too many calls.
    pub(crate) async fn answer(
        &self,
        path: &str,
        route: CallRoute,
        parameters: Parameters,
        view: Arc<DaemonView>,
    ) -> Answer {
        let key = format!("{path} {}", parameters.key());
        let mut waiting = match self.find_or_start(key, route, parameters, view)? {
            Kept::Ended(ended) => return ended.answer,
            Kept::Running(waiting) => waiting,
        };
        let ended = waiting.wait_for(Option::is_some).await;
        let answer = ended.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| Err(Problem::internal()))
    }

    /// The kept answer of a call, or the call that runs. Starts the call if there is neither.
    fn find_or_start(
        &self,
        key: String,
        route: CallRoute,
        parameters: Parameters,
        view: Arc<DaemonView>,
    ) -> Result<Kept, Problem> {
        let mut kept = self.lock();
        if let Some(found) = kept.find(&key, Instant::now()) {
            return Ok(found);
        }
        let (sender, waiting) = watch::channel(None);
        kept.begin(key.clone(), waiting.clone(), Instant::now())?;
        drop(kept);
        let calls = self.clone();
        tokio::spawn(async move {
            let answer = calls.call(route, parameters, view).await;
            calls.lock().end(&key, route.keep, &answer, Instant::now());
            // Nobody may wait any more.
            sender.send_replace(Some(answer));
        });
        Ok(Kept::Running(waiting))
    }

    /// Makes a call when it has its turn.
    async fn call(
        &self,
        route: CallRoute,
        parameters: Parameters,
        view: Arc<DaemonView>,
    ) -> Answer {
        let turn = tokio::time::timeout(MAX_QUEUED, self.turn(route.is_slow)).await;
        let Ok(Some(turn)) = turn else {
            return Err(too_many_calls());
        };
        let socket = self.socket.clone();
        let called = tokio::task::spawn_blocking(move || {
            // The turn ends with the call, not with the wait for it.
            let _turn = turn;
            let daemon = DaemonConnection::open(&socket, route.timeout)?;
            (route.run)(&mut CallContext { daemon, view }, &parameters)
        });
        let called = called.await.unwrap_or_else(|_| Err(Problem::internal()));
        called.map(Arc::new)
    }

    /// Waits for a turn. Slow calls wait for a slow turn first, while quick ones pass.
    async fn turn(&self, is_slow: bool) -> Option<Turn> {
        let slow = match is_slow {
            true => Some(Arc::clone(&self.slow_turns).acquire_owned().await.ok()?),
            false => None,
        };
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        Some(Turn {
            _slow: slow,
            _turn: turn,
        })
    }

    fn lock(&self) -> MutexGuard<'_, KeptAnswers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_many_calls() -> Problem {
    Problem::busy("the gateway has too many calls to gpukilld", 2)
}

/// A call that runs, or its answer.
#[derive(Clone)]
enum Kept {
    Running(Waiting),
    Ended(EndedCall),
}

#[derive(Clone)]
struct EndedCall {
    answer: Answer,
    at: Instant,
    keep: Duration,
}

impl EndedCall {
    fn is_current(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < self.keep
    }

    fn size(&self) -> usize {
        self.answer.as_ref().map_or(0, |document| document.size())
    }
}

/// The calls that run and the answers that are kept, by path and parameters.
#[derive(Default)]
struct KeptAnswers(BTreeMap<String, Kept>);

impl KeptAnswers {
    /// A call that runs, or an answer that is not too old.
    fn find(&self, key: &str, now: Instant) -> Option<Kept> {
        let is_usable = match self.0.get(key)? {
            // A task that failed leaves a closed channel.
            Kept::Running(waiting) => waiting.has_changed().is_ok(),
            Kept::Ended(ended) => ended.is_current(now),
        };
        self.0.get(key).filter(|_| is_usable).cloned()
    }

    /// Makes room for a call that begins.
    ///
    /// # Errors
    /// Too many calls run.
    fn begin(&mut self, key: String, waiting: Waiting, now: Instant) -> Result<(), Problem> {
        self.0.remove(&key);
        self.drop_expired(now);
        if self.0.len() >= MAX_KEPT && !self.drop_oldest() {
            return Err(too_many_calls());
        }
        self.0.insert(key, Kept::Running(waiting));
        Ok(())
    }

    /// Keeps the answer of a call that has ended, if it is short enough.
    fn end(&mut self, key: &str, keep: Duration, answer: &Answer, now: Instant) {
        self.0.remove(key);
        self.drop_expired(now);
        let ended = EndedCall {
            answer: answer.clone(),
            at: now,
            keep: if answer.is_ok() { keep } else { KEEP_FAILURE },
        };
        if ended.size() > MAX_KEPT_ANSWER {
            return;
        }
        while self.size() + ended.size() > MAX_KEPT_BYTES && self.drop_oldest() {}
        self.0.insert(key.to_owned(), Kept::Ended(ended));
    }

    /// The bytes of all answers.
    fn size(&self) -> usize {
        let sizes = self.0.values().map(|kept| match kept {
            Kept::Running(_) => 0,
            Kept::Ended(ended) => ended.size(),
        });
        sizes.sum()
    }

    fn drop_expired(&mut self, now: Instant) {
        self.0.retain(|_, kept| match kept {
            Kept::Running(waiting) => waiting.has_changed().is_ok(),
            Kept::Ended(ended) => ended.is_current(now),
        });
    }

    /// Drops the oldest answer, and returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let ended = self.0.iter().filter_map(|(key, kept)| match kept {
            Kept::Running(_) => None,
            Kept::Ended(ended) => Some((ended.at, key)),
        });
        let Some(oldest) = ended.min().map(|(_, key)| key.clone()) else {
            return false;
        };
        self.0.remove(&oldest).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const MINUTE: Duration = Duration::from_secs(60);

    fn answer_of(bytes: usize) -> Answer {
        Ok(Arc::new(Document::json(&"x".repeat(bytes)).unwrap()))
    }

    #[test]
    fn number_of_calls_and_answers_is_bounded() {
        let mut kept = KeptAnswers::default();
        let now = Instant::now();
        let (_sender, waiting) = watch::channel(None);
        for number in 0..MAX_KEPT {
            kept.begin(number.to_string(), waiting.clone(), now)
                .unwrap();
        }
        assert!(kept.begin("another".into(), waiting.clone(), now).is_err());
        kept.end("7", MINUTE, &answer_of(1), now);
        assert!(kept.find("7", now).is_some());
        assert!(kept.begin("another".into(), waiting, now).is_ok());
        assert!(kept.find("7", now).is_none());
        assert_eq!(kept.0.len(), MAX_KEPT);
    }

    #[test]
    fn answers_are_bounded_in_bytes_and_dropped_by_age() {
        let mut kept = KeptAnswers::default();
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        kept.end("long", MINUTE, &answer_of(MAX_KEPT_ANSWER), now);
        assert!(kept.find("long", now).is_none());
        let large = answer_of(MAX_KEPT_ANSWER - 10);
        for number in 0..40 {
            kept.end(&number.to_string(), MINUTE, &large, after(number));
        }
        assert!(kept.size() <= MAX_KEPT_BYTES, "{}", kept.size());
        assert!(kept.find("7", after(40)).is_none() && kept.find("39", after(40)).is_some());
        kept.end("new", MINUTE, &answer_of(1), after(200));
        assert_eq!(kept.0.len(), 1);
        let failure = Err(Problem::internal());
        kept.end("failed", MINUTE, &failure, after(200));
        assert!(kept.find("failed", after(200)).is_some());
        assert!(kept.find("failed", after(202)).is_none());
    }

    #[test]
    fn call_whose_task_failed_is_made_again() {
        let mut kept = KeptAnswers::default();
        let now = Instant::now();
        let (sender, waiting) = watch::channel(None);
        kept.begin("a".into(), waiting, now).unwrap();
        assert!(kept.find("a", now).is_some());
        drop(sender);
        assert!(kept.find("a", now).is_none());
    }

    #[tokio::test]
    async fn call_goes_on_when_its_client_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gpukilld.sock");
        // A daemon that never answers.
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let calls = Calls::new(socket);
        let route = CallRoute {
            keep: MINUTE,
            timeout: Duration::from_secs(2),
            is_slow: false,
            run: |_, _| Document::json(&1),
        };
        let answer = || calls.answer("/x", route, Parameters::default(), Arc::default());
        let gone = tokio::time::timeout(Duration::from_millis(50), answer()).await;
        assert!(gone.is_err());
        assert!(answer().await.is_err());
        assert!(listener.accept().is_ok());
        assert!(listener.accept().is_err());
    }

    #[tokio::test]
    async fn slow_calls_leave_turns_for_quick_ones() {
        let calls = Calls::new("/nowhere".into());
        let slow = [calls.turn(true).await, calls.turn(true).await];
        assert!(slow.iter().all(Option::is_some));
        let short = Duration::from_millis(20);
        let third = tokio::time::timeout(short, calls.turn(true)).await;
        assert!(third.is_err());
        let quick = tokio::time::timeout(MINUTE, calls.turn(false)).await;
        assert!(quick.is_ok_and(|turn| turn.is_some()));
    }
}
