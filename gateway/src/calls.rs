//! Calls to the daemon that requests make, beside the long poll: few at a time, and one for all
//! requests that want the same at about the same time. A caller has a share of them, so that none
//! keeps the others waiting.
//!
//! A call goes on when its client is gone: its answer serves the next client, and clients that come
//! and go cannot make the daemon do the same work many times.

use crate::daemon::DaemonConnection;
use crate::document::Document;
use crate::memory::MAX_KEPT_ANSWERS;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::shares::{Requester, Shares};
use crate::upstream::DaemonView;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The most calls at once. The daemon grants a user 8 connections, and the long poll is one.
const MAX_CALLS: usize = 6;

/// The most slow calls among them, so that quick calls find a free turn.
const MAX_SLOW_CALLS: usize = 3;

/// The most calls of one caller at once. A gateway of one person needs no more connections than
/// these, its long poll and its acts.
const MAX_CALLER_CALLS: usize = 4;

/// The most slow calls of one caller among them.
const MAX_CALLER_SLOW_CALLS: usize = 2;

/// How long a call waits for a turn of its caller, and then for one of all.
const MAX_QUEUED: Duration = Duration::from_secs(5);

/// How long a failure is given to later requests, so that each of them does not wait as long again.
const KEEP_FAILURE: Duration = Duration::from_secs(1);

/// The most answers that are kept, and the most different calls that wait.
const MAX_KEPT: usize = 64;

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
    /// What is known of the daemon from the long poll. A long call keeps no old snapshot in memory.
    pub(crate) view: watch::Receiver<Arc<DaemonView>>,
}

impl CallContext {
    /// What is known of the daemon now.
    pub(crate) fn view(&self) -> Arc<DaemonView> {
        Arc::clone(&self.view.borrow())
    }
}

/// The answer of a call, or why there is none.
type Answer = Result<Arc<Document>, Problem>;

/// Where requests wait for an answer; `None` until the call has ended.
type Waiting = watch::Receiver<Option<Answer>>;

/// Makes calls to the daemon. A clone shares turns and answers.
#[derive(Clone)]
pub(crate) struct Calls {
    socket: PathBuf,
    turns: Arc<Turns>,
    shares: Arc<Shares<Turns>>,
    kept: Arc<Mutex<KeptAnswers>>,
}

/// The calls that may be made at once.
struct Turns {
    all: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

/// The right to make a call, until it is dropped.
struct Turn {
    _slow: Option<OwnedSemaphorePermit>,
    _turn: OwnedSemaphorePermit,
    _of: Arc<Turns>,
}

impl Turns {
    fn new(all: usize, slow: usize) -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(all)),
            slow: Arc::new(Semaphore::new(slow)),
        })
    }

    /// Waits for a turn. Slow calls wait for a slow turn first, while quick ones pass.
    ///
    /// # Errors
    /// The turn does not come in time.
    async fn take(self: Arc<Self>, is_slow: bool) -> Result<Turn, Problem> {
        let turn = async {
            let slow = match is_slow {
                true => Some(Arc::clone(&self.slow).acquire_owned().await.ok()?),
                false => None,
            };
            let turn = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some((slow, turn))
        };
        let taken = tokio::time::timeout(MAX_QUEUED, turn).await;
        match taken {
            Ok(Some((slow, turn))) => Ok(Turn {
                _slow: slow,
                _turn: turn,
                _of: self,
            }),
            Ok(None) | Err(_) => Err(too_many_calls()),
        }
    }
}

impl Calls {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            turns: Turns::new(MAX_CALLS, MAX_SLOW_CALLS),
            shares: Arc::default(),
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
        requester: Requester,
        path: &str,
        route: CallRoute,
        parameters: Parameters,
        view: watch::Receiver<Arc<DaemonView>>,
    ) -> Answer {
        let key = format!("{path} {}", parameters.key());
        let found = self.lock().find(&key, Instant::now());
        if let Some(found) = found {
            return found.answer().await;
        }
        // Other requests share a call only once it has a turn of its caller: a caller that waits for
        // its own turns keeps nobody else waiting.
        let share = self.share(requester).take(route.is_slow).await?;
        let kept = self.find_or_start(key, share, route, parameters, view)?;
        kept.answer().await
    }

    /// The turns of one caller.
    fn share(&self, requester: Requester) -> Arc<Turns> {
        let turns = || Turns::new(MAX_CALLER_CALLS, MAX_CALLER_SLOW_CALLS);
        self.shares.of(requester, turns)
    }

    /// The kept answer of a call, or the call that runs. Starts the call if there is neither.
    fn find_or_start(
        &self,
        key: String,
        share: Turn,
        route: CallRoute,
        parameters: Parameters,
        view: watch::Receiver<Arc<DaemonView>>,
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
            let answer = calls.call(share, route, parameters, view).await;
            calls.lock().end(&key, route.keep, &answer, Instant::now());
            // Nobody may wait any more.
            sender.send_replace(Some(answer));
        });
        Ok(Kept::Running(waiting))
    }

    /// Makes a call that has a turn of its caller when it has one of all.
    async fn call(
        &self,
        share: Turn,
        route: CallRoute,
        parameters: Parameters,
        view: watch::Receiver<Arc<DaemonView>>,
    ) -> Answer {
        let turn = Arc::clone(&self.turns).take(route.is_slow).await?;
        let socket = self.socket.clone();
        let called = tokio::task::spawn_blocking(move || {
            // The turns end with the call, not with the wait for it.
            let _turns = (share, turn);
            let daemon = DaemonConnection::open(&socket, route.timeout)?;
            (route.run)(&mut CallContext { daemon, view }, &parameters)
        });
        let called = called.await.unwrap_or_else(|_| Err(Problem::internal()));
        called.map(Arc::new)
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

impl Kept {
    /// The answer, once there is one.
    async fn answer(self) -> Answer {
        match self {
            Self::Ended(ended) => ended.answer,
            Self::Running(mut waiting) => {
                let ended = waiting.wait_for(Option::is_some).await;
                let answer = ended.ok().and_then(|answer| answer.clone());
                answer.unwrap_or_else(|| Err(Problem::internal()))
            }
        }
    }
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
        while self.size() + ended.size() > MAX_KEPT_ANSWERS && self.drop_oldest() {}
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
    use crate::connections::Peer;
    use futures::FutureExt as _;
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
        assert!(kept.size() <= MAX_KEPT_ANSWERS, "{}", kept.size());
        assert!(kept.find("7", after(40)).is_none() && kept.find("39", after(40)).is_some());
        kept.end("new", MINUTE, &answer_of(1), after(200));
        assert_eq!(kept.0.len(), 1);
        let failure = Err(Problem::internal());
        kept.end("failed", MINUTE, &failure, after(200));
        assert!(kept.find("failed", after(200)).is_some());
        assert!(kept.find("failed", after(202)).is_none());
    }

    #[test]
    fn failed_call_is_made_again() {
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
        let answer = || {
            let parameters = Parameters::default();
            let (_, view) = watch::channel(Arc::default());
            calls.answer(caller(1), "/x", route, parameters, view)
        };
        let gone = tokio::time::timeout(Duration::from_millis(50), answer()).await;
        assert!(gone.is_err());
        assert!(answer().await.is_err());
        assert!(listener.accept().is_ok());
        assert!(listener.accept().is_err());
    }

    fn caller(uid: u32) -> Requester {
        Requester::Peer(Peer::User(uid))
    }

    /// Takes turns as long as they come at once.
    fn take_all(turns: impl Fn() -> Arc<Turns>, is_slow: bool) -> Vec<Turn> {
        let next = || turns().take(is_slow).now_or_never()?.ok();
        std::iter::from_fn(next).collect()
    }

    #[tokio::test]
    async fn slow_calls_leave_turns_for_quick_ones() {
        let turns = Turns::new(3, 2);
        let slow = take_all(|| Arc::clone(&turns), true);
        assert_eq!(slow.len(), 2);
        let quick = take_all(|| Arc::clone(&turns), false);
        assert_eq!(quick.len(), 1);
        drop(slow);
        assert_eq!(take_all(|| Arc::clone(&turns), true).len(), 2);
    }

    #[tokio::test]
    async fn one_caller_leaves_turns_to_others() {
        for (is_slow, all) in [(false, MAX_CALLS), (true, MAX_SLOW_CALLS)] {
            let calls = Calls::new("/nowhere".into());
            let mut held = Vec::new();
            // Each turn of a caller has one of all callers.
            let mut take = |uid: u32| {
                let shares = take_all(|| calls.share(caller(uid)), is_slow);
                let of_all = shares.iter().filter_map(|_| {
                    let turns = Arc::clone(&calls.turns);
                    turns.take(is_slow).now_or_never()?.ok()
                });
                let of_all: Vec<Turn> = of_all.collect();
                let taken = of_all.len();
                held.push((shares, of_all));
                taken
            };
            let first = take(1);
            assert!(first > 0 && first < all, "{first} of {all}");
            assert_eq!(take(1), 0);
            assert_eq!(take(2), all - first);
        }
    }

    #[tokio::test]
    async fn share_of_a_caller_is_kept_only_while_it_is_used() {
        let calls = Calls::new("/nowhere".into());
        let turn = calls.share(caller(1)).take(false).await;
        assert!(turn.is_ok());
        let count = || calls.shares.count();
        drop(calls.share(caller(2)));
        drop(calls.share(caller(3)));
        assert_eq!(count(), 2);
        drop(turn);
        drop(calls.share(caller(4)));
        assert_eq!(count(), 1);
    }
}
