//! Questions that may take for ever to answer: a name service that hangs, a
//! process that is stuck, a file on a dead disk. One thread asks them, one after
//! the other; everybody else reads what is known by now and never waits.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known by now of many things of a kind. Clones share it.
///
/// `K` names a thing, `Q` is what is needed to ask for it, `V` is an answer.
pub(super) struct Asked<K, Q, V> {
    shared: Arc<Shared<K, V>>,
    ask: SyncSender<(K, Q)>,
    manner: Manner,
}

/// How a kind of things is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// The name of the thread.
    pub(super) thread: &'static str,
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

struct Shared<K, V> {
    known: Mutex<Known<K, V>>,
    news: Condvar,
    slow: Duration,
}

struct Known<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    /// What is being asked for, and since when.
    asking: Option<(K, Instant)>,
    /// Why the last question failed, if it did.
    failure: Option<String>,
    changes: u64,
}

struct Entry<V> {
    answer: Answer<V>,
    asked: Instant,
}

impl<K, Q, V> Clone for Asked<K, Q, V> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            ask: self.ask.clone(),
            manner: self.manner,
        }
    }
}

impl<K, Q, V> Asked<K, Q, V>
where
    K: Ord + Clone + Send + 'static,
    Q: Send + 'static,
    V: Clone + PartialEq + Send + 'static,
{
    /// Starts the thread, which asks with `ask`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        manner: Manner,
        ask: impl FnMut(&K, Q) -> Result<V, String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            known: Mutex::new(Known {
                entries: BTreeMap::new(),
                asking: None,
                failure: None,
                changes: 0,
            }),
            news: Condvar::new(),
            slow: manner.slow,
        });
        let (sender, questions) = sync_channel(manner.queue);
        let answers = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(manner.thread.into())
            .spawn(move || answer(ask, &questions, &answers))?;
        Ok(Self {
            shared,
            ask: sender,
            manner,
        })
    }

    /// What is known of a thing. Asks for it where it is not known or old.
    pub(super) fn of(&self, key: &K, question: impl FnOnce() -> Q) -> Answer<V> {
        let mut known = self.shared.lock();
        let now = Instant::now();
        let entry = known.entries.get(key);
        let due =
            entry.is_none_or(|entry| now.saturating_duration_since(entry.asked) > self.manner.keep);
        if due && self.ask.try_send((key.clone(), question())).is_ok() {
            if let Some(entry) = known.entries.get_mut(key) {
                entry.asked = now;
            } else {
                known.make_room(self.manner.most);
                let answer = Answer::Pending;
                let entry = Entry { answer, asked: now };
                known.entries.insert(key.clone(), entry);
            }
        }
        let entry = known.entries.get(key);
        entry.map_or(Answer::Pending, |entry| entry.answer.clone())
    }

    /// Forgets a thing, so that it is asked for again.
    pub(super) fn forget(&self, key: &K) {
        self.shared.lock().entries.remove(key);
    }

    /// Forgets everything but these.
    pub(super) fn keep_only(&self, wanted: impl Fn(&K) -> bool) {
        self.shared.lock().entries.retain(|key, _| wanted(key));
    }

    /// Waits until everything was answered once, but not past `deadline`, and
    /// not for a question that is stuck.
    pub(super) fn settle(&self, deadline: Instant) {
        let mut known = self.shared.lock();
        while known.is_waiting() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || known.stuck(self.shared.slow).is_some() {
                return;
            }
            let waited = self.shared.news.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the thread is stuck with.
    pub(super) fn stuck(&self) -> Option<K> {
        self.shared.lock().stuck(self.shared.slow).cloned()
    }

    /// Why the last question failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }

    /// Grows whenever something else is known than before.
    pub(super) fn changes(&self) -> u64 {
        self.shared.lock().changes
    }
}

impl<K: Ord + Clone, V> Known<K, V> {
    fn is_waiting(&self) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| matches!(entry.answer, Answer::Pending))
    }

    fn stuck(&self, slow: Duration) -> Option<&K> {
        let (key, since) = self.asking.as_ref()?;
        (since.elapsed() > slow).then_some(key)
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

impl<K, V> Shared<K, V> {
    fn lock(&self) -> MutexGuard<'_, Known<K, V>> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer<K: Ord + Clone, Q, V: PartialEq>(
    mut ask: impl FnMut(&K, Q) -> Result<V, String>,
    questions: &Receiver<(K, Q)>,
    shared: &Shared<K, V>,
) {
    while let Ok((key, question)) = questions.recv() {
        shared.lock().asking = Some((key.clone(), Instant::now()));
        // Without the lock: this is what may take for ever.
        let answered = ask(&key, question);
        let mut known = shared.lock();
        known.asking = None;
        known.failure = answered.as_ref().err().cloned();
        // Forgotten meanwhile: nobody asks any more.
        if let Some(entry) = known.entries.get_mut(&key) {
            let changed = entry.take(answered);
            known.changes += u64::from(changed);
        }
        drop(known);
        shared.news.notify_all();
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
        let asked = Asked::start(manner, move |_, question| match told.recv() {
            Ok(true) => Ok(question),
            Ok(false) | Err(_) => Err("told so".into()),
        });
        (asked.unwrap(), tell)
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
        while asked.stuck() != Some(1) {
            std::thread::yield_now();
        }
        // Not even the deadline is waited for.
        asked.settle(Instant::now() + Duration::from_secs(3_600));
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
            let keys = asked.shared.lock();
            keys.entries.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(kept(&asked), [1, 2, 3, 4]);
        asked.keep_only(|key| *key > 2);
        asked.forget(&4);
        assert_eq!(kept(&asked), [3]);
    }
}
