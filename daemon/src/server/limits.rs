//! Limits the number of connections: in total, and for one person.

use gpukill_policy::access::LimitGroup;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections in total. A client that does not read its answers makes the daemon hold two calls
/// and their pages, some hundred KiB, for each connection.
const MAX_CONNECTIONS: usize = 64;

/// Reserved for operators, admins and root, who must get through when plain users fill the rest.
const RESERVED_CONNECTIONS: usize = 16;

/// For one plain person, so that nobody can fill the rest alone.
const MAX_PER_PERSON: usize = 8;

/// For one operator, admin or root.
const MAX_PER_PRIVILEGED_PERSON: usize = 32;

/// Counts connections. Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct ConnectionLimits(Arc<Mutex<ConnectionCounts>>);

#[derive(Default)]
struct ConnectionCounts {
    total: usize,
    plain: usize,
    /// By group and privilege: unprivileged connections of a person never take the place of the
    /// privileged ones.
    by_group: BTreeMap<(LimitGroup, bool), usize>,
}

/// Room for one connection, given back when dropped.
pub(super) struct ConnectionSlot {
    limits: ConnectionLimits,
    group: LimitGroup,
    privileged: bool,
}

impl ConnectionLimits {
    /// Room for a connection of this group, if there is any.
    pub(super) fn admit(&self, group: LimitGroup, privileged: bool) -> Option<ConnectionSlot> {
        let mut counts = self.lock();
        let of_one = counts
            .by_group
            .get(&(group, privileged))
            .copied()
            .unwrap_or(0);
        let fits = if privileged {
            counts.total < MAX_CONNECTIONS && of_one < MAX_PER_PRIVILEGED_PERSON
        } else {
            counts.total < MAX_CONNECTIONS
                && counts.plain < MAX_CONNECTIONS - RESERVED_CONNECTIONS
                && of_one < MAX_PER_PERSON
        };
        if !fits {
            return None;
        }
        counts.total += 1;
        counts.plain += usize::from(!privileged);
        *counts.by_group.entry((group, privileged)).or_default() += 1;
        Some(ConnectionSlot {
            limits: self.clone(),
            group,
            privileged,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        // Nothing panics while it holds this lock; if something did, the counts would still be
        // consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
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

    fn fill(limits: &ConnectionLimits, uid: u32, privileged: bool) -> Vec<ConnectionSlot> {
        std::iter::from_fn(|| limits.admit(LimitGroup::Person(uid), privileged)).collect()
    }

    #[test]
    fn operators_always_get_through() {
        let limits = ConnectionLimits::default();
        let plain: Vec<Vec<ConnectionSlot>> =
            (1000..1100).map(|uid| fill(&limits, uid, false)).collect();
        assert_eq!(plain.iter().map(Vec::len).max(), Some(MAX_PER_PERSON));
        assert_eq!(
            plain.iter().map(Vec::len).sum::<usize>(),
            MAX_CONNECTIONS - RESERVED_CONNECTIONS
        );
        let operator = fill(&limits, 0, true);
        assert_eq!(operator.len(), RESERVED_CONNECTIONS);
        drop(plain);
        assert_eq!(
            operator.len() + fill(&limits, 0, true).len(),
            MAX_PER_PRIVILEGED_PERSON
        );
    }

    #[test]
    fn privileged_are_counted_apart() {
        let limits = ConnectionLimits::default();
        let _plain = fill(&limits, 0, false);
        assert_eq!(fill(&limits, 0, true).len(), MAX_PER_PRIVILEGED_PERSON);
    }

    #[test]
    fn slot_is_given_back() {
        let limits = ConnectionLimits::default();
        for _ in 0..3 {
            assert_eq!(fill(&limits, 1000, false).len(), MAX_PER_PERSON);
        }
        assert!(limits.lock().by_group.is_empty());
    }
}
