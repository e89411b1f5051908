//! Whose question about the past is next: nobody's questions hold up everybody
//! else's.
//!
//! One thread answers them all, in their order, and one may take seconds. Of each
//! plain user one question at a time waits for it, and of all plain users together a
//! few; those who run the box always find room.

use gpukill_policy::access::LimitGroup;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of all plain users at a time: a quarter of what the store lets wait.
const PLAIN: usize = 4;

/// Gives turns. Clones give the same.
#[derive(Clone)]
pub(crate) struct Turns {
    plain: Arc<Semaphore>,
    of_user: Arc<Mutex<BTreeMap<LimitGroup, Weak<Semaphore>>>>,
}

/// A turn, given back when dropped.
pub(super) struct Turn {
    _of_user: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            plain: Arc::new(Semaphore::new(PLAIN)),
            of_user: Arc::default(),
        }
    }
}

impl Turns {
    /// Waits for the turn of a plain user of this group.
    pub(super) async fn plain(&self, group: LimitGroup) -> Turn {
        let own = self.of(group);
        // Neither is ever closed. Their own first: who asks much waits for
        // themselves, and not in others' way.
        let of_user = own.acquire_owned().await.ok();
        let of_all = Arc::clone(&self.plain).acquire_owned().await.ok();
        Turn {
            _of_user: of_user,
            _of_all: of_all,
        }
    }

    /// That of one who runs the box: they need not wait.
    pub(super) const fn privileged() -> Turn {
        Turn {
            _of_user: None,
            _of_all: None,
        }
    }

    fn of(&self, group: LimitGroup) -> Arc<Semaphore> {
        // Nothing panics while it holds this lock.
        let mut of_user = self.of_user.lock().unwrap_or_else(PoisonError::into_inner);
        of_user.retain(|_, waiting| waiting.strong_count() > 0);
        if let Some(own) = of_user.get(&group).and_then(Weak::upgrade) {
            return own;
        }
        let own = Arc::new(Semaphore::new(1));
        of_user.insert(group, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LimitGroup::Person;
    use futures::FutureExt as _;

    #[test]
    fn a_user_waits_for_their_own_question_and_not_for_anothers() {
        let turns = Turns::default();
        let first = turns.plain(Person(1)).now_or_never();
        assert!(first.is_some());
        assert!(turns.plain(Person(1)).now_or_never().is_none());
        let other = turns.plain(Person(2)).now_or_never();
        assert!(other.is_some());
        drop(first);
        assert!(turns.plain(Person(1)).now_or_never().is_some());
    }

    #[test]
    fn all_plain_users_together_leave_room() {
        let turns = Turns::default();
        let held: Vec<Option<Turn>> = (0..u32::try_from(PLAIN).unwrap())
            .map(|uid| turns.plain(Person(uid)).now_or_never())
            .collect();
        assert!(held.iter().all(Option::is_some));
        assert!(turns.plain(Person(99)).now_or_never().is_none());
        drop(held);
        assert!(turns.plain(Person(99)).now_or_never().is_some());
        // Nobody who has gone is remembered.
        let _one = turns.plain(Person(7)).now_or_never();
        assert_eq!(turns.of_user.lock().unwrap().len(), 1);
    }
}
