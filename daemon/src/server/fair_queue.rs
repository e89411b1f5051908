//! A fair queue for queries of the past, and for snooze requests: no user delays those of all
//! others.
//!
//! One thread answers all queries in order, and one query may take seconds. One query of each plain
//! user waits for it at a time, and a few of all plain users together; there is always room for
//! operators, admins and root. The next turn is that of the user who waits longest.

use gpukill_policy::access::LimitGroup;
use gpukill_proto::collect::RetainEntries as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The waiting queries of all plain users: a quarter of the queue of the store, and of the guard.
const MAX_PLAIN_QUERIES: usize = 4;

/// Grants permits. Clones share the queue.
#[derive(Clone)]
pub(crate) struct FairQueue {
    plain: Arc<Semaphore>,
    of_user: Arc<Mutex<BTreeMap<LimitGroup, Weak<Semaphore>>>>,
}

/// A permit, given back when dropped.
pub(super) struct QueuePermit {
    _of_user: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Default for FairQueue {
    fn default() -> Self {
        Self {
            plain: Arc::new(Semaphore::new(MAX_PLAIN_QUERIES)),
            of_user: Arc::default(),
        }
    }
}

impl FairQueue {
    /// Waits for the permit of a plain user of this group.
    pub(super) async fn acquire_plain(&self, group: LimitGroup) -> QueuePermit {
        let own = self.user_semaphore(group);
        // Neither is ever closed. The semaphore of the user comes first: a user with many queries
        // waits for them and does not delay others.
        let of_user = own.acquire_owned().await.ok();
        let of_all = Arc::clone(&self.plain).acquire_owned().await.ok();
        QueuePermit {
            _of_user: of_user,
            _of_all: of_all,
        }
    }

    /// The permit of a privileged user, who need not wait.
    pub(super) const fn privileged_permit() -> QueuePermit {
        QueuePermit {
            _of_user: None,
            _of_all: None,
        }
    }

    fn user_semaphore(&self, group: LimitGroup) -> Arc<Semaphore> {
        // Nothing panics while it holds this lock.
        let mut of_user = self.of_user.lock().unwrap_or_else(PoisonError::into_inner);
        of_user.retain_entries(|_, waiting| waiting.strong_count() > 0);
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
    use std::pin::pin;

    #[test]
    fn users_wait_only_for_their_own_queries() {
        let queue = FairQueue::default();
        let first = queue.acquire_plain(Person(1)).now_or_never();
        assert!(first.is_some());
        assert!(queue.acquire_plain(Person(1)).now_or_never().is_none());
        let other = queue.acquire_plain(Person(2)).now_or_never();
        assert!(other.is_some());
        drop(first);
        assert!(queue.acquire_plain(Person(1)).now_or_never().is_some());
    }

    #[test]
    fn busy_users_leave_turns_to_others() {
        let queue = FairQueue::default();
        let mut held: Vec<Option<QueuePermit>> = (0..u32::try_from(MAX_PLAIN_QUERIES).unwrap())
            .map(|uid| queue.acquire_plain(Person(uid)).now_or_never())
            .collect();
        let mut other = pin!(queue.acquire_plain(Person(99)));
        assert!(other.as_mut().now_or_never().is_none());
        let mut again = pin!(queue.acquire_plain(Person(0)));
        assert!(again.as_mut().now_or_never().is_none());
        held.remove(0);
        assert!(again.as_mut().now_or_never().is_none());
        assert!(other.as_mut().now_or_never().is_some());
    }

    #[test]
    fn plain_users_leave_room() {
        let queue = FairQueue::default();
        let held: Vec<Option<QueuePermit>> = (0..u32::try_from(MAX_PLAIN_QUERIES).unwrap())
            .map(|uid| queue.acquire_plain(Person(uid)).now_or_never())
            .collect();
        assert!(held.iter().all(Option::is_some));
        assert!(queue.acquire_plain(Person(99)).now_or_never().is_none());
        drop(held);
        assert!(queue.acquire_plain(Person(99)).now_or_never().is_some());
        // Users that have gone are not kept.
        let _one = queue.acquire_plain(Person(7)).now_or_never();
        assert_eq!(queue.of_user.lock().unwrap().len(), 1);
    }
}
