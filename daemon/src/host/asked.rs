//! Questions that may take for ever to answer: a name service that hangs, a
//! process that is stuck, a file on a dead disk. Threads of their own ask them,
//! and one that hangs costs one of these; everybody else reads what is known by
//! now and never waits. A thread starts when a question comes and no thread is
//! free, and ends when there is none for a while.

use gpukill_proto::collect::IntoSet as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known by now of many things of a kind. Clones share it.
///
/// `K` names a thing, `Q` is what is needed to ask for it, `V` is an answer.
pub(super) struct Asked<K, Q, V>(Arc<Shared<K, Q, V>>);

/// How a kind of things is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// The name of each thread.
    pub(super) thread: &'static str,
    /// So many threads ask at most, each one question at a time. When all are
    /// stuck, nothing is answered until one goes on.
    pub(super) threads: usize,
    /// So many questions may wait; one that comes then is asked another time.
    pub(super) queue: usize,
    /// So many answers are kept; then the oldest makes room.
    pub(super) most: usize,
    /// After so long a thing is asked for again.
    pub(super) keep: Duration,
    /// A question that takes longer is stuck, and waited for no more.
    pub(super) slow: Duration,
}

/// What is known of one thing. A value stays when asking again fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer<V> {
    Pending,
    Failed,
    Given(V),
}

/// A thread without a question ends after so long. The questions of one poll come
/// together; most polls have none.
const LINGER: Duration = if cfg!(test) {
    Duration::from_millis(20)
} else {
    Duration::from_secs(1)
};

/// How a thing is asked for.
type Ask<K, Q, V> = Box<dyn Fn(&K, Q) -> Result<V, String> + Send + Sync>;

struct Shared<K, Q, V> {
    manner: Manner,
    ask: Ask<K, Q, V>,
    known: Mutex<Known<K, Q, V>>,
    /// A question waits for a thread.
    questions: Condvar,
    /// A question was answered.
    news: Condvar,
}

struct Known<K, Q, V> {
    entries: BTreeMap<K, Entry<V>>,
    /// What is on its way, and so not asked for a second time.
    out: BTreeMap<K, Out<Q>>,
    /// The questions that wait for a thread.
    waiting: VecDeque<(K, Q)>,
    /// How many threads there are, and how many of them have no question.
    threads: usize,
    idle: usize,
    /// Why the last question failed, if it did.
    failure: Option<String>,
    changes: u64,
}

struct Out<Q> {
    /// Since when it is being asked for; none while it waits.
    since: Option<Instant>,
    /// What to ask when it is answered: it was forgotten meanwhile, and the
    /// answer may be of before.
    again: Option<Q>,
}

struct Entry<V> {
    answer: Answer<V>,
    asked: Instant,
}

impl<K, Q, V> Clone for Asked<K, Q, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, Q, V> Asked<K, Q, V>
where
    K: Ord + Clone + Send + 'static,
    Q: Send + 'static,
    V: Clone + PartialEq + Send + 'static,
{
    /// Nothing is known yet, and `ask` asks.
    pub(super) fn new(
        manner: Manner,
        ask: impl Fn(&K, Q) -> Result<V, String> + Send + Sync + 'static,
    ) -> Self {
        let known = Known {
            entries: BTreeMap::new(),
            out: BTreeMap::new(),
            waiting: VecDeque::new(),
            threads: 0,
            idle: 0,
            failure: None,
            changes: 0,
        };
        Self(Arc::new(Shared {
            manner,
            ask: Box::new(ask),
            known: Mutex::new(known),
            questions: Condvar::new(),
            news: Condvar::new(),
        }))
    }

    /// What is known of a thing. Asks for it where it is not known or old.
    pub(super) fn of(&self, key: &K, question: impl FnOnce() -> Q) -> Answer<V> {
        let manner = self.0.manner;
        let mut known = self.0.lock();
        let known = &mut *known;
        let now = Instant::now();
        let is_old = |entry: &Entry<V>| now.saturating_duration_since(entry.asked) > manner.keep;
        let is_sent = match (known.out.get_mut(key), known.entries.get(key)) {
            (Some(_), Some(_)) => false,
            (Some(out), None) => {
                out.again = Some(question());
                true
            }
            (None, entry) if entry.is_none_or(is_old) => {
                let has_room = known.waiting.len() < manner.queue;
                if has_room {
                    known.waiting.push_back((key.clone(), question()));
                    let (since, again) = (None, None);
                    known.out.insert(key.clone(), Out { since, again });
                }
                has_room
            }
            (None, _) => false,
        };
        if is_sent {
            known.note(key, now, manner.most);
        }
        // Also where no thread could be started for an earlier question.
        self.find_threads(known);
        let entry = known.entries.get(key);
        entry.map_or(Answer::Pending, |entry| entry.answer.clone())
    }

    /// Wakes a thread for what waits, or starts one where too few are free.
    fn find_threads(&self, known: &mut Known<K, Q, V>) {
        if known.waiting.is_empty() {
            return;
        }
        self.0.questions.notify_one();
        if known.waiting.len() <= known.idle || known.threads >= self.0.manner.threads {
            return;
        }
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(self.0.manner.thread.into());
        match thread.spawn(move || shared.answer()) {
            Ok(_) => known.threads += 1,
            // The next question tries again.
            Err(error) => known.failure = Some(format!("cannot start a thread: {error}")),
        }
    }

    /// Whether a question for it waits for a thread, or is being asked.
    pub(super) fn is_on_its_way(&self, key: &K) -> bool {
        self.0.lock().out.contains_key(key)
    }

    /// Forgets a thing, so that it is asked for again.
    pub(super) fn forget(&self, key: &K) {
        self.0.lock().entries.remove(key);
    }

    /// Forgets everything but these.
    pub(super) fn keep_only(&self, wanted: impl Fn(&K) -> bool) {
        self.0.lock().entries.retain(|key, _| wanted(key));
    }

    /// Waits until everything was answered once, but not past `deadline`, and
    /// not for a question that is stuck, nor behind those that are.
    pub(super) fn settle(&self, deadline: Instant) {
        self.settle_for(|_| true, deadline);
    }

    /// Waits likewise for what is wanted alone.
    pub(super) fn settle_for(&self, wanted: impl Fn(&K) -> bool, deadline: Instant) {
        let mut known = self.0.lock();
        while known.is_worth_waiting(&wanted, self.0.manner) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // Nobody tells that a question is stuck from now on.
            let left = left.min(self.0.manner.slow / 4);
            let waited = self.0.news.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the threads are stuck with; as many as there are threads when all
    /// are.
    pub(super) fn stuck(&self) -> Vec<K> {
        let known = self.0.lock();
        known.stuck(self.0.manner.slow).cloned().collect()
    }

    /// Why the last question failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.0.lock().failure.clone()
    }

    /// Grows whenever something else is known than before.
    pub(super) fn changes(&self) -> u64 {
        self.0.lock().changes
    }
}

impl<K: Ord + Clone, Q, V> Known<K, Q, V> {
    /// Keeps that a thing is asked for now.
    fn note(&mut self, key: &K, now: Instant, most: usize) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.asked = now;
            return;
        }
        self.make_room(most);
        let answer = Answer::Pending;
        let entry = Entry { answer, asked: now };
        self.entries.insert(key.clone(), entry);
    }

    /// Whether something wanted was never answered and still may be soon.
    fn is_worth_waiting(&self, wanted: impl Fn(&K) -> bool, manner: Manner) -> bool {
        let stuck: BTreeSet<&K> = self.stuck(manner.slow).into_set();
        let mut pending = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.answer, Answer::Pending));
        stuck.len() < manner.threads && pending.any(|(key, _)| wanted(key) && !stuck.contains(key))
    }

    fn stuck(&self, slow: Duration) -> impl Iterator<Item = &K> {
        let out = self.out.iter();
        out.filter(move |(_, out)| out.since.is_some_and(|since| since.elapsed() > slow))
            .map(|(key, _)| key)
    }

    /// Keeps that a thing is being asked for from now on; false where it was forgotten
    /// since, and nobody waits for an answer.
    fn begin(&mut self, key: &K) -> bool {
        if !self.entries.contains_key(key) {
            self.out.remove(key);
            return false;
        }
        let (since, again) = (Some(Instant::now()), None);
        self.out.insert(key.clone(), Out { since, again });
        true
    }

    /// Keeps an answer; what to ask next where it is not wanted.
    fn take(&mut self, key: &K, answered: Result<V, String>) -> Option<Q>
    where
        V: PartialEq,
    {
        let again = self.out.remove(key).and_then(|out| out.again);
        self.failure = answered.as_ref().err().cloned();
        // Where it was forgotten meanwhile, nobody asks any more.
        let entry = self.entries.get_mut(key)?;
        if again.is_none() {
            self.changes += u64::from(entry.take(answered));
            return None;
        }
        self.begin(key);
        again
    }

    /// Forgets what was asked for longest ago when there is too much.
    fn make_room(&mut self, most: usize) {
        if self.entries.len() >= most {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.asked);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
    }
}

impl<K, Q, V> Shared<K, Q, V> {
    fn lock(&self) -> MutexGuard<'_, Known<K, Q, V>> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, Q, V: PartialEq> Shared<K, Q, V> {
    /// What each thread does.
    fn answer(&self) {
        let _counted = Counted(self);
        while let Some((key, mut question)) = self.next() {
            loop {
                // Without the lock: this is what may take for ever.
                let answered = (self.ask)(&key, question);
                match self.lock().take(&key, answered) {
                    Some(again) => question = again,
                    None => break,
                }
            }
            self.news.notify_all();
        }
    }

    /// Waits a while for a question that is still wanted.
    fn next(&self) -> Option<(K, Q)> {
        let mut known = self.lock();
        loop {
            while let Some((key, question)) = known.waiting.pop_front() {
                if known.begin(&key) {
                    return Some((key, question));
                }
                self.news.notify_all();
            }
            // What many questions needed is not kept.
            known.waiting.shrink_to_fit();
            known.idle += 1;
            let waited = self.questions.wait_timeout(known, LINGER);
            let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            known = guard;
            known.idle -= 1;
            if waited.timed_out() && known.waiting.is_empty() {
                // While nobody else can count on this thread for a question.
                known.threads -= 1;
                return None;
            }
        }
    }
}

/// A thread that answers; one that panics is none any more.
struct Counted<'a, K, Q, V>(&'a Shared<K, Q, V>);

impl<K, Q, V> Drop for Counted<'_, K, Q, V> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().threads -= 1;
        }
    }
}

impl<V: PartialEq> Entry<V> {
    /// Keeps the answer; true when it is another one than before.
    fn take(&mut self, answered: Result<V, String>) -> bool {
        let answer = match (answered, &self.answer) {
            (Ok(value), _) => Answer::Given(value),
            (Err(_), Answer::Given(_)) => return false,
            (Err(_), Answer::Pending | Answer::Failed) => Answer::Failed,
        };
        let changed = answer != self.answer;
        self.answer = answer;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const MANNER: Manner = Manner {
        thread: "asked",
        threads: 1,
        queue: 8,
        most: 4,
        keep: Duration::from_secs(3_600),
        slow: Duration::from_millis(20),
    };

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// Answers each question with itself when it is told to, or fails.
    fn obedient(manner: Manner) -> (Asked<u32, u32, u32>, Sender<bool>) {
        let (tell, told) = channel();
        let told = Mutex::new(told);
        let asked = Asked::new(manner, move |_, question| {
            match told.lock().unwrap().recv() {
                Ok(true) => Ok(question),
                Ok(false) | Err(_) => Err("told so".into()),
            }
        });
        (asked, tell)
    }

    #[test]
    fn what_was_asked_for_is_known_when_it_is_answered_and_nobody_waits_before() {
        let (asked, tell) = obedient(MANNER);
        assert_eq!(asked.of(&1, || 10), Answer::Pending);
        tell.send(true).unwrap();
        asked.settle(soon());
        assert_eq!(asked.of(&1, || 11), Answer::Given(10));
        assert_eq!(asked.changes(), 1);
    }

    #[test]
    fn what_is_old_is_asked_for_again_and_shown_until_the_answer_comes() {
        let (asked, tell) = obedient(Manner {
            keep: Duration::ZERO,
            ..MANNER
        });
        asked.of(&1, || 10);
        tell.send(true).unwrap();
        asked.settle(soon());
        while asked.of(&1, || 11) != Answer::Given(11) {
            tell.send(true).unwrap();
        }
        assert!(asked.changes() >= 2);
    }

    #[test]
    fn a_failure_is_told_and_keeps_what_was_known() {
        let (asked, tell) = obedient(Manner {
            keep: Duration::ZERO,
            ..MANNER
        });
        asked.of(&1, || 10);
        tell.send(true).unwrap();
        asked.settle(soon());
        assert_eq!(asked.failure(), None);
        asked.of(&1, || 11);
        asked.of(&2, || 20);
        tell.send(false).unwrap();
        tell.send(false).unwrap();
        asked.settle(soon());
        assert_eq!(asked.failure().as_deref(), Some("told so"));
        assert_eq!(asked.of(&1, || 11), Answer::Given(10));
        assert_eq!(asked.of(&2, || 20), Answer::Failed);
    }

    #[test]
    fn a_question_that_hangs_delays_nobody_and_is_known_to_hang() {
        let (asked, _tell) = obedient(MANNER);
        asked.of(&1, || 10);
        asked.settle(Instant::now() + Duration::from_millis(1));
        while asked.stuck() != [1] {
            std::thread::yield_now();
        }
        // Not even the deadline is waited for.
        asked.settle(Instant::now() + Duration::from_secs(3_600));
    }

    /// Keys below 10 hang, each until it is told to go on; the others answer.
    struct Hanging {
        asked: Asked<u32, u32, u32>,
        go_on: BTreeMap<u32, Sender<()>>,
        /// How often each was asked for.
        times: Arc<Mutex<BTreeMap<u32, u32>>>,
    }

    fn hanging(manner: Manner) -> Hanging {
        let (go_on, told): (BTreeMap<_, _>, BTreeMap<_, _>) = (0..10)
            .map(|key| (key, channel()))
            .map(|(key, (go_on, told))| ((key, go_on), (key, Mutex::new(told))))
            .unzip();
        let times = Arc::new(Mutex::new(BTreeMap::new()));
        let counted = Arc::clone(&times);
        let asked = Asked::new(manner, move |key: &u32, question| {
            *counted.lock().unwrap().entry(*key).or_default() += 1;
            if let Some(told) = told.get(key) {
                let _ = told.lock().unwrap().recv();
            }
            Ok(question)
        });
        Hanging {
            asked,
            go_on,
            times,
        }
    }

    impl Hanging {
        fn ask(&self, keys: &[u32]) -> Vec<Answer<u32>> {
            let ask = |key: &u32| self.asked.of(key, || *key);
            keys.iter().map(ask).collect()
        }

        fn wait_until_stuck(&self, with: &[u32]) {
            while self.asked.stuck() != with {
                std::thread::yield_now();
            }
        }

        fn times(&self, key: u32) -> Option<u32> {
            self.times.lock().unwrap().get(&key).copied()
        }
    }

    const TWO: Manner = Manner {
        threads: 2,
        most: 32,
        ..MANNER
    };

    #[test]
    fn one_that_hangs_costs_one_thread_and_the_others_are_answered() {
        let hanging = hanging(TWO);
        hanging.ask(&[1]);
        hanging.wait_until_stuck(&[1]);
        hanging.ask(&[11, 12, 13]);
        hanging.asked.settle(soon());
        let given = [11, 12, 13].map(Answer::Given);
        assert_eq!(hanging.ask(&[11, 12, 13]), given);
        assert_eq!(hanging.ask(&[1]), [Answer::Pending]);
        assert_eq!(hanging.asked.stuck(), [1]);
    }

    #[test]
    fn when_all_threads_hang_the_rest_waits_and_all_is_answered_when_they_go_on() {
        let hanging = hanging(TWO);
        hanging.ask(&[1, 2]);
        hanging.wait_until_stuck(&[1, 2]);
        let pending = Answer::Pending;
        assert_eq!(hanging.ask(&[11, 12]), [pending.clone(), pending.clone()]);
        // Not even the deadline is waited for.
        hanging
            .asked
            .settle(Instant::now() + Duration::from_secs(3_600));
        assert_eq!(hanging.ask(&[11, 12]), [pending.clone(), pending.clone()]);
        assert_eq!(hanging.times(11), None);

        hanging.go_on[&1].send(()).unwrap();
        while hanging.ask(&[1, 11, 12]).contains(&pending) {
            std::thread::yield_now();
        }
        assert_eq!(hanging.asked.stuck(), [2]);
        hanging.go_on[&2].send(()).unwrap();
        hanging.wait_until_stuck(&[]);
        let given = [1, 2, 11, 12].map(Answer::Given);
        assert_eq!(hanging.ask(&[1, 2, 11, 12]), given);
    }

    #[test]
    fn what_hangs_is_not_asked_for_a_second_time_however_old_or_forgotten_it_is() {
        let hanging = hanging(Manner {
            keep: Duration::ZERO,
            ..TWO
        });
        hanging.ask(&[1]);
        hanging.wait_until_stuck(&[1]);
        for _ in 0..3 {
            hanging.ask(&[1]);
            hanging.asked.forget(&1);
        }
        // One thread is free for this, so it would have been for the other.
        hanging.ask(&[11]);
        while hanging.ask(&[11]) != [Answer::Given(11)] {
            std::thread::yield_now();
        }
        assert_eq!(hanging.asked.stuck(), [1]);
        assert_eq!(hanging.times(1), Some(1));
    }

    #[test]
    fn what_is_forgotten_while_it_is_asked_for_is_asked_for_anew() {
        let hanging = hanging(TWO);
        assert_eq!(hanging.asked.of(&1, || 10), Answer::Pending);
        hanging.wait_until_stuck(&[1]);
        hanging.asked.forget(&1);
        assert_eq!(hanging.asked.of(&1, || 20), Answer::Pending);
        for _ in 0..2 {
            hanging.go_on[&1].send(()).unwrap();
        }
        while hanging.asked.of(&1, || 30) == Answer::Pending {
            std::thread::yield_now();
        }
        assert_eq!(hanging.asked.of(&1, || 30), Answer::Given(20));
        assert_eq!(hanging.times(1), Some(2));
    }

    #[test]
    fn what_is_forgotten_before_it_is_asked_for_is_not_asked_for() {
        let hanging = hanging(MANNER);
        hanging.ask(&[1]);
        hanging.wait_until_stuck(&[1]);
        hanging.ask(&[11, 12, 13]);
        hanging.asked.keep_only(|key| *key == 13);
        // It is wanted again before its turn comes.
        hanging.ask(&[12]);
        hanging.go_on[&1].send(()).unwrap();
        hanging.wait_until_stuck(&[]);
        hanging.asked.settle(soon());
        assert_eq!(hanging.ask(&[12, 13]), [12, 13].map(Answer::Given));
        assert_eq!(
            [11, 12, 13].map(|it| hanging.times(it)),
            [None, Some(1), Some(1)]
        );
        // The same later.
        assert_eq!(hanging.ask(&[11]), [Answer::Pending]);
        hanging.asked.settle(soon());
        assert_eq!(hanging.ask(&[11]), [Answer::Given(11)]);
    }

    #[test]
    fn threads_come_with_questions_and_end_without_them() {
        let hanging = hanging(TWO);
        let threads = || hanging.asked.0.lock().threads;
        assert_eq!(threads(), 0);
        for key in [11, 12, 13] {
            hanging.ask(&[key]);
            hanging.asked.settle(soon());
        }
        hanging.ask(&[1, 2, 14]);
        hanging.wait_until_stuck(&[1, 2]);
        assert_eq!(threads(), 2);
        for key in [1, 2] {
            hanging.go_on[&key].send(()).unwrap();
        }
        hanging.asked.settle(soon());
        while threads() > 0 {
            std::thread::yield_now();
        }
        // Another question finds a thread again.
        hanging.ask(&[15]);
        hanging.asked.settle(soon());
        assert_eq!(hanging.ask(&[14, 15]), [14, 15].map(Answer::Given));
    }

    #[test]
    fn a_question_never_misses_a_thread_that_is_about_to_end() {
        let hanging = hanging(MANNER);
        for step in 0..40 {
            hanging.ask(&[10 + step]);
            hanging.asked.settle(soon());
            assert_eq!(hanging.ask(&[10 + step]), [Answer::Given(10 + step)]);
            // About as long as a thread waits for another one.
            std::thread::sleep(
                LINGER - Duration::from_micros(500) + Duration::from_micros(25) * step,
            );
        }
    }

    #[test]
    fn what_is_forgotten_or_too_much_is_not_kept() {
        let (asked, tell) = obedient(MANNER);
        for key in 0..5 {
            asked.of(&key, || key);
            tell.send(true).unwrap();
        }
        asked.settle(soon());
        let kept = |asked: &Asked<u32, u32, u32>| {
            let keys = asked.0.lock();
            keys.entries.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(kept(&asked), [1, 2, 3, 4]);
        asked.keep_only(|key| *key > 2);
        asked.forget(&4);
        assert_eq!(kept(&asked), [3]);
    }
}
