//! How many connections there may be: in all, and of one user.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections in all. A client that does not read its answers makes the daemon
/// hold two calls and their pages, some hundred KiB, for each of them.
const TOTAL: usize = 64;

/// Of these, so many are kept for operators, admins and root: they must get
/// through when plain users fill the rest.
const RESERVED: usize = 16;

/// Of one plain user, so that none of them can fill the rest alone. A person
/// with a range of subordinate uids is many users here.
const OF_ONE_USER: usize = 8;

/// Of one operator, admin or root.
const OF_ONE_PRIVILEGED_USER: usize = 32;

/// Counts connections. Clones count together.
#[derive(Clone, Default)]
pub(super) struct Limits(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    total: usize,
    plain: usize,
    of_user: BTreeMap<u32, usize>,
}

/// A place for one connection, given back when dropped.
pub(super) struct Slot {
    limits: Limits,
    uid: u32,
    privileged: bool,
}

impl Limits {
    /// A place for a connection of this user, if there is one.
    pub(super) fn admit(&self, uid: u32, privileged: bool) -> Option<Slot> {
        let mut counts = self.lock();
        let of_user = counts.of_user.get(&uid).copied().unwrap_or(0);
        let fits = if privileged {
            counts.total < TOTAL && of_user < OF_ONE_PRIVILEGED_USER
        } else {
            counts.total < TOTAL && counts.plain < TOTAL - RESERVED && of_user < OF_ONE_USER
        };
        if !fits {
            return None;
        }
        counts.total += 1;
        counts.plain += usize::from(!privileged);
        *counts.of_user.entry(uid).or_default() += 1;
        Some(Slot {
            limits: self.clone(),
            uid,
            privileged,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Nothing panics while it holds this lock; if something did, the counts
        // in it are whole all the same.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.limits.lock();
        counts.total -= 1;
        counts.plain -= usize::from(!self.privileged);
        if let Some(of_user) = counts.of_user.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                counts.of_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(limits: &Limits, uid: u32, privileged: bool) -> Vec<Slot> {
        std::iter::from_fn(|| limits.admit(uid, privileged)).collect()
    }

    #[test]
    fn no_user_can_fill_the_daemon_and_operators_always_get_through() {
        let limits = Limits::default();
        let plain: Vec<Vec<Slot>> = (1000..1100).map(|uid| fill(&limits, uid, false)).collect();
        assert_eq!(plain.iter().map(Vec::len).max(), Some(OF_ONE_USER));
        assert_eq!(plain.iter().map(Vec::len).sum::<usize>(), TOTAL - RESERVED);
        let operator = fill(&limits, 0, true);
        assert_eq!(operator.len(), RESERVED);
        drop(plain);
        assert_eq!(
            operator.len() + fill(&limits, 0, true).len(),
            OF_ONE_PRIVILEGED_USER
        );
    }

    #[test]
    fn a_place_is_given_back() {
        let limits = Limits::default();
        for _ in 0..3 {
            assert_eq!(fill(&limits, 1000, false).len(), OF_ONE_USER);
        }
        assert!(limits.lock().of_user.is_empty());
    }
}
