//! Names of users and members of groups, from the name service.
//!
//! The name service may be LDAP and may hang for minutes, so it is asked on a
//! thread of its own; everybody else reads what is known by now.

use gpukill_proto::reading::Reading;
use gpukill_proto::text::visible;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Asks the name service. Both may block for as long as they like.
pub(crate) trait NameService: Send + 'static {
    /// The name of a user; `None` when nobody has this number.
    ///
    /// # Errors
    /// What the service says.
    fn user(&self, uid: u32) -> Result<Option<String>, String>;

    /// A group; `None` when there is none of this name.
    ///
    /// # Errors
    /// What the service says.
    fn group(&self, name: &str) -> Result<Option<Group>, String>;
}

/// A group of the name service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) gid: u32,
    /// The users it lists; those who have it as primary group are not listed.
    pub(crate) members: BTreeSet<String>,
}

/// The name service of the box, as glibc asks it.
pub(crate) struct System;

impl NameService for System {
    fn user(&self, uid: u32) -> Result<Option<String>, String> {
        let found =
            nix::unistd::User::from_uid(uid.into()).map_err(|errno| errno.desc().to_owned())?;
        Ok(found.map(|user| user.name))
    }

    fn group(&self, name: &str) -> Result<Option<Group>, String> {
        let found = nix::unistd::Group::from_name(name).map_err(|errno| errno.desc().to_owned())?;
        Ok(found.map(|group| Group {
            gid: group.gid.as_raw(),
            members: group.mem.into_iter().collect(),
        }))
    }
}

/// What is known of users and groups by now. Clones share it.
#[derive(Clone)]
pub(crate) struct Users {
    shared: Arc<Shared>,
    ask: SyncSender<Question>,
}

enum Question {
    User(u32),
    Group(String),
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    news: Condvar,
}

#[derive(Default)]
struct Known {
    users: BTreeMap<u32, Entry<String>>,
    groups: BTreeMap<String, Entry<Group>>,
    /// Since when the thread has been waiting for one answer.
    waiting_since: Option<Instant>,
    failure: Option<String>,
}

struct Entry<T> {
    value: Option<T>,
    answer: Answer,
    asked: Instant,
}

#[derive(PartialEq, Eq)]
enum Answer {
    Pending,
    Given,
    Failed,
}

/// After so long a name is asked for again.
const KEEP: Duration = Duration::from_secs(300);

/// After so long a group is asked for again: members are added while we run.
const KEEP_GROUP: Duration = Duration::from_secs(30);

/// The most users kept. Real boxes have tens, but anybody with user namespaces
/// can come as many.
const MOST_USERS: usize = 10_000;

/// How long one answer may take before it is a fault.
const SLOW: Duration = Duration::from_secs(5);

impl Users {
    /// Starts the thread that asks.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(service: impl NameService) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (ask, questions) = sync_channel(256);
        let answers = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("names".into())
            .spawn(move || answer(&service, &questions, &answers))?;
        Ok(Self { shared, ask })
    }

    /// The name of a user. Asks for it where it is not known, and never waits.
    pub(crate) fn name(&self, uid: u32) -> Reading<String> {
        let mut known = self.shared.lock();
        let now = Instant::now();
        let due = match known.users.get(&uid) {
            Some(entry) => entry.is_due(now, KEEP),
            None => true,
        };
        if due && self.ask.try_send(Question::User(uid)).is_ok() {
            known.make_room();
            known
                .users
                .entry(uid)
                .and_modify(|entry| entry.asked = now)
                .or_insert_with(|| Entry::new(now));
        }
        match known.users.get(&uid) {
            Some(Entry {
                value: Some(name), ..
            }) => Reading::Value(name.clone()),
            Some(Entry {
                answer: Answer::Given,
                ..
            }) => Reading::Unsupported,
            Some(Entry {
                answer: Answer::Failed,
                ..
            }) => Reading::Failed("the name service fails".into()),
            Some(Entry {
                answer: Answer::Pending,
                ..
            })
            | None => Reading::Failed("not resolved yet".into()),
        }
    }

    /// Whether the name of a user is asked for and not answered yet. Asks for it
    /// where it was not asked for.
    pub(crate) fn is_asking_for(&self, uid: u32) -> bool {
        self.name(uid);
        let known = self.shared.lock();
        known
            .users
            .get(&uid)
            .is_some_and(|entry| entry.answer == Answer::Pending)
    }

    /// A group, if it is known. Asks for it where it is not, and never waits.
    pub(crate) fn group(&self, name: &str) -> Option<Group> {
        let mut known = self.shared.lock();
        let now = Instant::now();
        if known
            .groups
            .get(name)
            .is_none_or(|entry| entry.is_due(now, KEEP_GROUP))
            && self.ask.try_send(Question::Group(name.to_owned())).is_ok()
        {
            let entry = known.groups.entry(name.to_owned());
            entry
                .and_modify(|entry| entry.asked = now)
                .or_insert_with(|| Entry::new(now));
        }
        known.groups.get(name).and_then(|entry| entry.value.clone())
    }

    /// Waits until everything asked so far is answered, but not past `deadline`.
    pub(crate) fn settle(&self, deadline: Instant) {
        let mut known = self.shared.lock();
        while known
            .users
            .values()
            .any(|entry| entry.answer == Answer::Pending)
            || known
                .groups
                .values()
                .any(|entry| entry.answer == Answer::Pending)
        {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            known = self
                .shared
                .news
                .wait_timeout(known, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// What is wrong with the name service now.
    pub(crate) fn fault(&self) -> Option<String> {
        let known = self.shared.lock();
        if known
            .waiting_since
            .is_some_and(|since| since.elapsed() > SLOW)
        {
            return Some("the name service does not answer: users are shown by number".into());
        }
        known
            .failure
            .as_ref()
            .map(|failure| format!("the name service fails: {failure}"))
    }
}

impl Known {
    /// Forgets the user who was asked for longest ago when there are too many.
    fn make_room(&mut self) {
        if self.users.len() >= MOST_USERS {
            let oldest = self.users.iter().min_by_key(|(_, entry)| entry.asked);
            if let Some(oldest) = oldest.map(|(uid, _)| *uid) {
                self.users.remove(&oldest);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entry<T> {
    fn new(now: Instant) -> Self {
        Self {
            value: None,
            answer: Answer::Pending,
            asked: now,
        }
    }

    fn is_due(&self, now: Instant, keep: Duration) -> bool {
        now.saturating_duration_since(self.asked) > keep
    }
}

fn answer(service: &impl NameService, questions: &Receiver<Question>, shared: &Shared) {
    while let Ok(question) = questions.recv() {
        shared.lock().waiting_since = Some(Instant::now());
        // Asked without the lock: this is what may take minutes.
        let failure = match question {
            Question::User(uid) => {
                let answered = service.user(uid);
                let mut known = shared.lock();
                let entry = known
                    .users
                    .entry(uid)
                    .or_insert_with(|| Entry::new(Instant::now()));
                entry.take(answered.map(|name| name.map(|name| visible(name.as_bytes(), 64))))
            }
            Question::Group(name) => {
                let answered = service.group(&name);
                let mut known = shared.lock();
                let entry = known
                    .groups
                    .entry(name)
                    .or_insert_with(|| Entry::new(Instant::now()));
                entry.take(answered)
            }
        };
        let mut known = shared.lock();
        known.failure = failure;
        known.waiting_since = None;
        drop(known);
        shared.news.notify_all();
    }
}

impl<T> Entry<T> {
    /// Keeps the answer. A failure keeps the old value and is returned.
    fn take(&mut self, answered: Result<Option<T>, String>) -> Option<String> {
        match answered {
            Ok(value) => {
                self.value = value;
                self.answer = Answer::Given;
                None
            }
            Err(failure) => {
                self.answer = Answer::Failed;
                Some(failure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Answers only when told to.
    struct Slow(Receiver<()>);

    impl NameService for Slow {
        fn user(&self, uid: u32) -> Result<Option<String>, String> {
            self.0.recv().map_err(|error| error.to_string())?;
            Ok((uid == 1000).then(|| "ali\u{1b}ce".to_owned()))
        }

        fn group(&self, _: &str) -> Result<Option<Group>, String> {
            Ok(Some(Group {
                gid: 800,
                members: ["alice".to_owned()].into(),
            }))
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_name_service_that_hangs_delays_nobody() {
        let (tell, told) = channel();
        let users = Users::start(Slow(told)).unwrap();
        assert_eq!(users.name(1000), Reading::Failed("not resolved yet".into()));
        assert_eq!(users.name(1000), Reading::Failed("not resolved yet".into()));
        tell.send(()).unwrap();
        users.settle(soon());
        assert_eq!(users.name(1000), Reading::Value("ali\\x1bce".into()));
    }

    #[test]
    fn a_user_nobody_knows_has_no_name_and_is_no_fault() {
        let (tell, told) = channel();
        let users = Users::start(Slow(told)).unwrap();
        users.name(4_000_000);
        tell.send(()).unwrap();
        users.settle(soon());
        assert_eq!(users.name(4_000_000), Reading::Unsupported);
        assert_eq!(users.fault(), None);
    }

    #[test]
    fn the_box_knows_root() {
        let users = Users::start(System).unwrap();
        users.name(0);
        users.settle(soon());
        assert_eq!(users.name(0), Reading::Value("root".into()));
    }
}
