//! How many connections there may be: in all, and of one person.

use gpukill_policy::access::LimitGroup;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections in all. A client that does not read its answers makes the daemon
/// hold two calls and their pages, some hundred KiB, for each of them.
const TOTAL: usize = 64;

/// Of these, so many are kept for operators, admins and root: they must get
/// through when plain users fill the rest.
const RESERVED: usize = 16;

/// Of one plain person, so that none of them can fill the rest alone.
const OF_ONE_PERSON: usize = 8;

/// Of one operator, admin or root.
const OF_ONE_PRIVILEGED_PERSON: usize = 32;

/// Counts connections. Clones count together.
#[derive(Clone, Default)]
pub(super) struct Limits(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    total: usize,
    plain: usize,
    /// And whether they are privileged: what a person does without their rights is in
    /// nobody's way who has them.
    by_group: BTreeMap<(LimitGroup, bool), usize>,
}

/// A place for one connection, given back when dropped.
pub(super) struct Slot {
    limits: Limits,
    group: LimitGroup,
    privileged: bool,
}

impl Limits {
    /// A place for a connection of this group, if there is one.
    pub(super) fn admit(&self, group: LimitGroup, privileged: bool) -> Option<Slot> {
        let mut counts = self.lock();
        let of_one = counts
            .by_group
            .get(&(group, privileged))
            .copied()
            .unwrap_or(0);
        let fits = if privileged {
            counts.total < TOTAL && of_one < OF_ONE_PRIVILEGED_PERSON
        } else {
            counts.total < TOTAL && counts.plain < TOTAL - RESERVED && of_one < OF_ONE_PERSON
        };
        if !fits {
            return None;
        }
        counts.total += 1;
        counts.plain += usize::from(!privileged);
        *counts.by_group.entry((group, privileged)).or_default() += 1;
        Some(Slot {
            limits: self.clone(),
            group,
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
        let key = (self.group, self.privileged);
        if let Some(of_one) = counts.by_group.get_mut(&key) {
            *of_one -= 1;
            if *of_one == 0 {
                counts.by_group.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(limits: &Limits, uid: u32, privileged: bool) -> Vec<Slot> {
        std::iter::from_fn(|| limits.admit(LimitGroup::Person(uid), privileged)).collect()
    }

    #[test]
    fn no_user_can_fill_the_daemon_and_operators_always_get_through() {
        let limits = Limits::default();
        let plain: Vec<Vec<Slot>> = (1000..1100).map(|uid| fill(&limits, uid, false)).collect();
        assert_eq!(plain.iter().map(Vec::len).max(), Some(OF_ONE_PERSON));
        assert_eq!(plain.iter().map(Vec::len).sum::<usize>(), TOTAL - RESERVED);
        let operator = fill(&limits, 0, true);
        assert_eq!(operator.len(), RESERVED);
        drop(plain);
        assert_eq!(
            operator.len() + fill(&limits, 0, true).len(),
            OF_ONE_PRIVILEGED_PERSON
        );
    }

    #[test]
    fn who_is_privileged_is_not_counted_with_who_is_not() {
        let limits = Limits::default();
        let _plain = fill(&limits, 0, false);
        assert_eq!(fill(&limits, 0, true).len(), OF_ONE_PRIVILEGED_PERSON);
    }

    #[test]
    fn a_place_is_given_back() {
        let limits = Limits::default();
        for _ in 0..3 {
            assert_eq!(fill(&limits, 1000, false).len(), OF_ONE_PERSON);
        }
        assert!(limits.lock().by_group.is_empty());
    }
}
