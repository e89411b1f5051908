//! A cache of values that background threads read, for reads that may never finish: a name service
//! that hangs, a process that is stuck, a file on a dead disk. A read that hangs costs one thread;
//! callers get the cached value and never wait. A thread starts when a request has no free thread,
//! and ends when it is idle for a while.

use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The cached values of one kind. Clones share them.
///
/// `K` is the key, `Q` the input of a read, `V` the value.
pub(super) struct BackgroundCache<K, Q, V>(Arc<CacheShared<K, Q, V>>);

/// How values of one kind are fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchPolicy {
    /// The thread name.
    pub(super) thread: &'static str,
    /// The highest number of threads, each with one request at a time. When all are stuck, no
    /// request is answered until one of them continues.
    pub(super) threads: usize,
    /// How many requests may wait; the next one must be repeated later.
    pub(super) queue: usize,
    /// How many values are kept; the oldest goes first.
    pub(super) max_entries: usize,
    /// The age at which a value is fetched again.
    pub(super) refresh_after: Duration,
    /// A fetch that takes longer counts as stuck, and is not waited for.
    pub(super) stuck_after: Duration,
}

/// The cached state of one key. A value stays when a later fetch fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CachedValue<V> {
    Pending,
    Failed,
    Ready(V),
}

/// How long a thread waits for the next request. The requests of one poll come together; most polls
/// have none.
const IDLE_TIMEOUT: Duration = if cfg!(test) {
    Duration::from_millis(20)
} else {
    Duration::from_secs(1)
};

type FetchFn<K, Q, V> = Box<dyn Fn(&K, Q) -> Result<V, String> + Send + Sync>;

struct CacheShared<K, Q, V> {
    policy: FetchPolicy,
    fetch: FetchFn<K, Q, V>,
    state: Mutex<CacheState<K, Q, V>>,
    /// Signals a request that waits for a thread.
    queued: Condvar,
    /// Signals an answer.
    answered: Condvar,
}

struct CacheState<K, Q, V> {
    entries: BTreeMap<K, CacheEntry<V>>,
    /// Requests that wait or are being fetched, and so are not queued again.
    in_flight: BTreeMap<K, InFlight<Q>>,
    /// The requests that wait for a thread.
    queue: VecDeque<(K, Q)>,
    /// The number of threads, and of those without a request.
    threads: usize,
    idle: usize,
    /// The error of the last fetch, if it failed.
    failure: Option<String>,
    changes: u64,
}

struct InFlight<Q> {
    /// When the fetch started; `None` while the request waits.
    since: Option<Instant>,
    /// The request to fetch again after the answer: the key was dropped meanwhile, and the answer
    /// may be outdated.
    refetch: Option<Q>,
}

impl<Q> InFlight<Q> {
    fn since(since: Option<Instant>) -> Self {
        let refetch = None;
        Self { since, refetch }
    }
}

struct CacheEntry<V> {
    value: CachedValue<V>,
    requested_at: Instant,
}

impl<K, Q, V> Clone for BackgroundCache<K, Q, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, Q, V> BackgroundCache<K, Q, V>
where
    K: Ord + Clone + Send + 'static,
    Q: Send + 'static,
    V: Clone + PartialEq + Send + 'static,
{
    /// An empty cache; `ask` fetches a value.
    pub(super) fn new(
        policy: FetchPolicy,
        ask: impl Fn(&K, Q) -> Result<V, String> + Send + Sync + 'static,
    ) -> Self {
        let known = CacheState {
            entries: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            queue: VecDeque::new(),
            threads: 0,
            idle: 0,
            failure: None,
            changes: 0,
        };
        Self(Arc::new(CacheShared {
            policy,
            fetch: Box::new(ask),
            state: Mutex::new(known),
            queued: Condvar::new(),
            answered: Condvar::new(),
        }))
    }

    /// The cached value of a key. Requests a fetch where the value is unknown or old.
    pub(super) fn get(&self, key: &K, question: impl FnOnce() -> Q) -> CachedValue<V> {
        let policy = self.0.policy;
        let mut known = self.0.lock();
        let known = &mut *known;
        let now = Instant::now();
        let is_old = |entry: &CacheEntry<V>| {
            now.saturating_duration_since(entry.requested_at) > policy.refresh_after
        };
        let is_sent = match (known.in_flight.get_mut(key), known.entries.get(key)) {
            (Some(_), Some(_)) => false,
            (Some(out), None) => {
                out.refetch = Some(question());
                true
            }
            (None, entry) if entry.is_none_or(is_old) => {
                let has_room = known.queue.len() < policy.queue;
                if has_room {
                    known.queue.push_back((key.clone(), question()));
                    known.in_flight.insert(key.clone(), InFlight::since(None));
                }
                has_room
            }
            (None, _) => false,
        };
        if is_sent {
            known.record_request(key, now, policy.max_entries);
        }
        // Also when no thread could be started for an earlier request.
        self.ensure_thread(known);
        let entry = known.entries.get(key);
        entry.map_or(CachedValue::Pending, |entry| entry.value.clone())
    }

    /// Wakes a thread for the waiting requests, or starts one where too few are idle.
    fn ensure_thread(&self, known: &mut CacheState<K, Q, V>) {
        if known.queue.is_empty() {
            return;
        }
        self.0.queued.notify_one();
        if known.queue.len() <= known.idle || known.threads >= self.0.policy.threads {
            return;
        }
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(self.0.policy.thread.into());
        match thread.spawn(move || shared.run_thread()) {
            Ok(_) => known.threads += 1,
            // The next request tries again.
            Err(error) => known.failure = Some(format!("cannot start a thread: {error}")),
        }
    }

    /// Whether a request for this key waits or is being fetched.
    pub(super) fn is_in_flight(&self, key: &K) -> bool {
        self.0.lock().in_flight.contains_key(key)
    }

    /// Drops a value so that it is fetched again.
    pub(super) fn forget(&self, key: &K) {
        self.0.lock().entries.remove(key);
    }

    /// Drops all other keys.
    pub(super) fn keep_only(&self, wanted: impl Fn(&K) -> bool) {
        self.0.lock().entries.retain_entries(|key, _| wanted(key));
    }

    /// Waits until every request was answered once, at most until `deadline`, and neither for a
    /// stuck fetch nor for requests behind one.
    pub(super) fn settle(&self, deadline: Instant) {
        self.settle_for(|_| true, deadline);
    }

    /// The same for the wanted keys only.
    pub(super) fn settle_for(&self, wanted: impl Fn(&K) -> bool, deadline: Instant) {
        let mut known = self.0.lock();
        while known.is_worth_waiting(&wanted, self.0.policy) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // No signal announces that a fetch becomes stuck.
            let left = left.min(self.0.policy.stuck_after / 4);
            let waited = self.0.answered.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The keys of stuck fetches; as many as threads when all are stuck.
    pub(super) fn stuck(&self) -> Vec<K> {
        let known = self.0.lock();
        known.stuck(self.0.policy.stuck_after).cloned().collect()
    }

    /// The error of the last fetch, if it failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.0.lock().failure.clone()
    }

    /// Grows with each change of a cached value.
    pub(super) fn changes(&self) -> u64 {
        self.0.lock().changes
    }
}

impl<K: Ord + Clone, Q, V> CacheState<K, Q, V> {
    fn record_request(&mut self, key: &K, now: Instant, max_entries: usize) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.requested_at = now;
            return;
        }
        self.make_room(max_entries);
        let entry = CacheEntry {
            value: CachedValue::Pending,
            requested_at: now,
        };
        self.entries.insert(key.clone(), entry);
    }

    /// Whether a wanted key without a value may get one soon.
    fn is_worth_waiting(&self, wanted: impl Fn(&K) -> bool, policy: FetchPolicy) -> bool {
        let stuck: BTreeSet<&K> = self.stuck(policy.stuck_after).into_set();
        let mut pending = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.value, CachedValue::Pending));
        stuck.len() < policy.threads && pending.any(|(key, _)| wanted(key) && !stuck.contains(key))
    }

    fn stuck(&self, slow: Duration) -> impl Iterator<Item = &K> {
        let out = self.in_flight.iter();
        out.filter(move |(_, out)| out.since.is_some_and(|since| since.elapsed() > slow))
            .map(|(key, _)| key)
    }

    /// Records that a fetch starts; false where the key was dropped since and the answer is not
    /// needed.
    fn start_fetch(&mut self, key: &K) -> bool {
        if !self.entries.contains_key(key) {
            self.in_flight.remove(key);
            return false;
        }
        let started = InFlight::since(Some(Instant::now()));
        self.in_flight.insert(key.clone(), started);
        true
    }

    /// Stores an answer. Returns the request to fetch again where the key was dropped meanwhile.
    fn store(&mut self, key: &K, answered: Result<V, String>) -> Option<Q>
    where
        V: PartialEq,
    {
        let again = self.in_flight.remove(key).and_then(|out| out.refetch);
        self.failure = answered.as_ref().err().cloned();
        // A key that was dropped meanwhile has no callers any more.
        let entry = self.entries.get_mut(key)?;
        if again.is_none() {
            self.changes += u64::from(entry.store(answered));
            return None;
        }
        self.start_fetch(key);
        again
    }

    /// Drops the oldest request when the cache is full.
    fn make_room(&mut self, max_entries: usize) {
        if self.entries.len() >= max_entries {
            let oldest = self
                .entries
                .iter()
                .min_by_key(|(_, entry)| entry.requested_at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
    }
}

impl<K, Q, V> CacheShared<K, Q, V> {
    fn lock(&self) -> MutexGuard<'_, CacheState<K, Q, V>> {
        // No code panics while it holds this lock; if some did, the values in it would still be
        // whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, Q, V: PartialEq> CacheShared<K, Q, V> {
    /// The loop of each thread.
    fn run_thread(&self) {
        let _counted = ThreadGuard(self);
        while let Some((key, mut question)) = self.next_request() {
            loop {
                // Without the lock: this call may take forever.
                let answered = (self.fetch)(&key, question);
                match self.lock().store(&key, answered) {
                    Some(again) => question = again,
                    None => break,
                }
            }
            self.answered.notify_all();
        }
    }

    /// Waits a while for a request that is still needed.
    fn next_request(&self) -> Option<(K, Q)> {
        let mut known = self.lock();
        loop {
            while let Some((key, question)) = known.queue.pop_front() {
                if known.start_fetch(&key) {
                    return Some((key, question));
                }
                self.answered.notify_all();
            }
            // Releases the memory of a long queue.
            known.queue.shrink_to_fit();
            known.idle += 1;
            let waited = self.queued.wait_timeout(known, IDLE_TIMEOUT);
            let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            known = guard;
            known.idle -= 1;
            if waited.timed_out() && known.queue.is_empty() {
                // Under the lock, so that no caller counts on this thread for a request.
                known.threads -= 1;
                return None;
            }
        }
    }
}

/// Corrects the number of threads when a thread panics.
struct ThreadGuard<'a, K, Q, V>(&'a CacheShared<K, Q, V>);

impl<K, Q, V> Drop for ThreadGuard<'_, K, Q, V> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().threads -= 1;
        }
    }
}

impl<V: PartialEq> CacheEntry<V> {
    /// Stores the answer. True where the value changed.
    fn store(&mut self, answered: Result<V, String>) -> bool {
        let answer = match (answered, &self.value) {
            (Ok(value), _) => CachedValue::Ready(value),
            (Err(_), CachedValue::Ready(_)) => return false,
            (Err(_), CachedValue::Pending | CachedValue::Failed) => CachedValue::Failed,
        };
        let changed = answer != self.value;
        self.value = answer;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const MANNER: FetchPolicy = FetchPolicy {
        thread: "cache",
        threads: 1,
        queue: 8,
        max_entries: 4,
        refresh_after: Duration::from_secs(3_600),
        stuck_after: Duration::from_millis(20),
    };

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// Answers each request with its key, or fails, when it is allowed to.
    fn obedient(policy: FetchPolicy) -> (BackgroundCache<u32, u32, u32>, Sender<bool>) {
        let (sender, receiver) = channel();
        let receiver = Mutex::new(receiver);
        let cache = BackgroundCache::new(policy, move |_, question| {
            match receiver.lock().unwrap().recv() {
                Ok(true) => Ok(question),
                Ok(false) | Err(_) => Err("as instructed".into()),
            }
        });
        (cache, sender)
    }

    #[test]
    fn value_is_known_once_answered() {
        let (cache, sender) = obedient(MANNER);
        assert_eq!(cache.get(&1, || 10), CachedValue::Pending);
        sender.send(true).unwrap();
        cache.settle(soon());
        assert_eq!(cache.get(&1, || 11), CachedValue::Ready(10));
        assert_eq!(cache.changes(), 1);
    }

    #[test]
    fn old_value_is_shown_until_refreshed() {
        let (cache, sender) = obedient(FetchPolicy {
            refresh_after: Duration::ZERO,
            ..MANNER
        });
        cache.get(&1, || 10);
        sender.send(true).unwrap();
        cache.settle(soon());
        while cache.get(&1, || 11) != CachedValue::Ready(11) {
            sender.send(true).unwrap();
        }
        assert!(cache.changes() >= 2);
    }

    #[test]
    fn failure_keeps_the_value() {
        let (cache, sender) = obedient(FetchPolicy {
            refresh_after: Duration::ZERO,
            ..MANNER
        });
        cache.get(&1, || 10);
        sender.send(true).unwrap();
        cache.settle(soon());
        assert_eq!(cache.failure(), None);
        cache.get(&1, || 11);
        cache.get(&2, || 20);
        sender.send(false).unwrap();
        sender.send(false).unwrap();
        cache.settle(soon());
        assert_eq!(cache.failure().as_deref(), Some("as instructed"));
        assert_eq!(cache.get(&1, || 11), CachedValue::Ready(10));
        assert_eq!(cache.get(&2, || 20), CachedValue::Failed);
    }

    #[test]
    fn hung_fetch_delays_no_caller() {
        let (cache, _sender) = obedient(MANNER);
        cache.get(&1, || 10);
        cache.settle(Instant::now() + Duration::from_millis(1));
        while cache.stuck() != [1] {
            std::thread::yield_now();
        }
        // It does not wait even until the deadline.
        cache.settle(Instant::now() + Duration::from_secs(3_600));
    }

    /// Keys below 10 block until they are released; the others answer.
    struct BlockingCache {
        cache: BackgroundCache<u32, u32, u32>,
        go_on: BTreeMap<u32, Sender<()>>,
        /// How often each key was fetched.
        times: Arc<Mutex<BTreeMap<u32, u32>>>,
    }

    fn hanging(policy: FetchPolicy) -> BlockingCache {
        let (go_on, receiver): (BTreeMap<_, _>, BTreeMap<_, _>) = (0..10)
            .map(|key| (key, channel()))
            .map(|(key, (go_on, receiver))| ((key, go_on), (key, Mutex::new(receiver))))
            .unzip();
        let times = Arc::new(Mutex::new(BTreeMap::new()));
        let counted = Arc::clone(&times);
        let cache = BackgroundCache::new(policy, move |key: &u32, question| {
            *counted.lock().unwrap().entry(*key).or_default() += 1;
            if let Some(receiver) = receiver.get(key) {
                let _ = receiver.lock().unwrap().recv();
            }
            Ok(question)
        });
        BlockingCache {
            cache,
            go_on,
            times,
        }
    }

    impl BlockingCache {
        fn ask(&self, keys: &[u32]) -> Vec<CachedValue<u32>> {
            let ask = |key: &u32| self.cache.get(key, || *key);
            keys.iter().map(ask).collect()
        }

        fn wait_until_stuck(&self, with: &[u32]) {
            while self.cache.stuck() != with {
                std::thread::yield_now();
            }
        }

        fn times(&self, key: u32) -> Option<u32> {
            self.times.lock().unwrap().get(&key).copied()
        }
    }

    const TWO: FetchPolicy = FetchPolicy {
        threads: 2,
        max_entries: 32,
        ..MANNER
    };

    #[test]
    fn hung_fetch_costs_one_thread() {
        let hanging = hanging(TWO);
        hanging.ask(&[1]);
        hanging.wait_until_stuck(&[1]);
        hanging.ask(&[11, 12, 13]);
        hanging.cache.settle(soon());
        let given = [11, 12, 13].map(CachedValue::Ready);
        assert_eq!(hanging.ask(&[11, 12, 13]), given);
        assert_eq!(hanging.ask(&[1]), [CachedValue::Pending]);
        assert_eq!(hanging.cache.stuck(), [1]);
    }

    #[test]
    fn all_threads_hung_then_all_answered() {
        let hanging = hanging(TWO);
        hanging.ask(&[1, 2]);
        hanging.wait_until_stuck(&[1, 2]);
        let pending = CachedValue::Pending;
        assert_eq!(hanging.ask(&[11, 12]), [pending.clone(), pending.clone()]);
        // It does not wait even until the deadline.
        hanging
            .cache
            .settle(Instant::now() + Duration::from_secs(3_600));
        assert_eq!(hanging.ask(&[11, 12]), [pending.clone(), pending.clone()]);
        assert_eq!(hanging.times(11), None);

        hanging.go_on[&1].send(()).unwrap();
        while hanging.ask(&[1, 11, 12]).contains(&pending) {
            std::thread::yield_now();
        }
        assert_eq!(hanging.cache.stuck(), [2]);
        hanging.go_on[&2].send(()).unwrap();
        hanging.wait_until_stuck(&[]);
        let given = [1, 2, 11, 12].map(CachedValue::Ready);
        assert_eq!(hanging.ask(&[1, 2, 11, 12]), given);
    }

    #[test]
    fn hung_key_is_not_fetched_twice() {
        let hanging = hanging(FetchPolicy {
            refresh_after: Duration::ZERO,
            ..TWO
        });
        hanging.ask(&[1]);
        hanging.wait_until_stuck(&[1]);
        for _ in 0..3 {
            hanging.ask(&[1]);
            hanging.cache.forget(&1);
        }
        // One thread is free for this key, so it would have been for the other.
        hanging.ask(&[11]);
        while hanging.ask(&[11]) != [CachedValue::Ready(11)] {
            std::thread::yield_now();
        }
        assert_eq!(hanging.cache.stuck(), [1]);
        assert_eq!(hanging.times(1), Some(1));
    }

    #[test]
    fn key_dropped_during_fetch_is_refetched() {
        let hanging = hanging(TWO);
        assert_eq!(hanging.cache.get(&1, || 10), CachedValue::Pending);
        hanging.wait_until_stuck(&[1]);
        hanging.cache.forget(&1);
        assert_eq!(hanging.cache.get(&1, || 20), CachedValue::Pending);
        for _ in 0..2 {
            hanging.go_on[&1].send(()).unwrap();
        }
        while hanging.cache.get(&1, || 30) == CachedValue::Pending {
            std::thread::yield_now();
        }
        assert_eq!(hanging.cache.get(&1, || 30), CachedValue::Ready(20));
        assert_eq!(hanging.times(1), Some(2));
    }

    #[test]
    fn key_dropped_before_fetch_is_skipped() {
        let hanging = hanging(MANNER);
        hanging.ask(&[1]);
        hanging.wait_until_stuck(&[1]);
        hanging.ask(&[11, 12, 13]);
        hanging.cache.keep_only(|key| *key == 13);
        // It is requested again before its turn.
        hanging.ask(&[12]);
        hanging.go_on[&1].send(()).unwrap();
        hanging.wait_until_stuck(&[]);
        hanging.cache.settle(soon());
        assert_eq!(hanging.ask(&[12, 13]), [12, 13].map(CachedValue::Ready));
        assert_eq!(
            [11, 12, 13].map(|it| hanging.times(it)),
            [None, Some(1), Some(1)]
        );
        // The same later.
        assert_eq!(hanging.ask(&[11]), [CachedValue::Pending]);
        hanging.cache.settle(soon());
        assert_eq!(hanging.ask(&[11]), [CachedValue::Ready(11)]);
    }

    #[test]
    fn threads_start_and_end_with_requests() {
        let hanging = hanging(TWO);
        let threads = || hanging.cache.0.lock().threads;
        assert_eq!(threads(), 0);
        for key in [11, 12, 13] {
            hanging.ask(&[key]);
            hanging.cache.settle(soon());
        }
        hanging.ask(&[1, 2, 14]);
        hanging.wait_until_stuck(&[1, 2]);
        assert_eq!(threads(), 2);
        for key in [1, 2] {
            hanging.go_on[&key].send(()).unwrap();
        }
        hanging.cache.settle(soon());
        while threads() > 0 {
            std::thread::yield_now();
        }
        // The next request finds a thread.
        hanging.ask(&[15]);
        hanging.cache.settle(soon());
        assert_eq!(hanging.ask(&[14, 15]), [14, 15].map(CachedValue::Ready));
    }

    #[test]
    fn request_never_misses_an_ending_thread() {
        let hanging = hanging(MANNER);
        for step in 0..40 {
            hanging.ask(&[10 + step]);
            hanging.cache.settle(soon());
            assert_eq!(hanging.ask(&[10 + step]), [CachedValue::Ready(10 + step)]);
            // About as long as a thread stays idle.
            std::thread::sleep(
                IDLE_TIMEOUT - Duration::from_micros(500) + Duration::from_micros(25) * step,
            );
        }
    }

    #[test]
    fn dropped_and_excess_values_are_removed() {
        let (cache, sender) = obedient(MANNER);
        for key in 0..5 {
            cache.get(&key, || key);
            sender.send(true).unwrap();
        }
        cache.settle(soon());
        let kept = |cache: &BackgroundCache<u32, u32, u32>| {
            let keys = cache.0.lock();
            keys.entries.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(kept(&cache), [1, 2, 3, 4]);
        cache.keep_only(|key| *key > 2);
        cache.forget(&4);
        assert_eq!(kept(&cache), [3]);
    }
}
