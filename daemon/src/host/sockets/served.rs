//! Listening sockets that external clients have been connected to, with the owner of each, so that
//! one owner's many sockets displace no sockets of others.

use super::budget::BudgetOwner;
use super::{SaveInodes, SavedServedSockets};
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many sockets are kept. Beyond that, sockets of the owners with the most are dropped, oldest
/// first.
const MAX_SOCKETS: usize = 65_536;

pub(super) struct ServedSockets {
    /// The owners by inode.
    sockets: BTreeMap<u64, Arc<BudgetOwner>>,
    has_unsaved: bool,
    save: SaveInodes,
}

impl ServedSockets {
    /// The owners of saved sockets are unknown until their jobs are scanned.
    pub(super) fn new(saved: SavedServedSockets) -> Self {
        let unknown = Arc::new(BudgetOwner::Unknown);
        let sockets = saved.sockets.into_iter();
        Self {
            sockets: sockets.map(|it| (it, Arc::clone(&unknown))).into_map(),
            has_unsaved: false,
            save: saved.save,
        }
    }

    /// Whether an external client has been connected to this socket.
    pub(super) fn contains(&self, inode: u64) -> bool {
        self.sockets.contains_key(&inode)
    }

    /// Records that an external client was connected to this socket, which belongs to a job of this
    /// owner.
    pub(super) fn insert(&mut self, inode: u64, share: &Arc<BudgetOwner>) {
        let before = self.sockets.insert(inode, Arc::clone(share));
        self.has_unsaved |= before.is_none();
    }

    /// Drops the excess, and saves the sockets where one was added.
    pub(super) fn save_new(&mut self) {
        self.make_room(MAX_SOCKETS);
        if std::mem::take(&mut self.has_unsaved) {
            let sockets: BTreeSet<u64> = self.sockets.keys().copied().into_set();
            (self.save)(&sockets);
        }
    }

    fn make_room(&mut self, max_sockets: usize) {
        let Some(excess) = self
            .sockets
            .len()
            .checked_sub(max_sockets)
            .filter(|it| *it > 0)
        else {
            return;
        };
        let mut counts: BTreeMap<&BudgetOwner, usize> = BTreeMap::new();
        for share in self.sockets.values() {
            *counts.entry(share).or_default() += 1;
        }
        // How many sockets are dropped where owners with more keep this many.
        let above = |level: usize| -> usize {
            let counts = counts.values();
            counts.map(|count| count.saturating_sub(level)).sum()
        };
        // The lowest level that drops no more than necessary.
        let (mut low, mut high) = (0, self.sockets.len());
        while low < high {
            let level = usize::midpoint(low, high);
            match above(level) <= excess {
                true => high = level,
                false => low = level + 1,
            }
        }
        let mut gone = BTreeSet::new();
        // The remainder comes from the owners that are at the level then.
        for level in [low, low.saturating_sub(1)] {
            for (inode, share) in &self.sockets {
                if let Some(count) = counts.get_mut(&**share)
                    && *count > level
                    && gone.len() < excess
                    && gone.insert(*inode)
                {
                    *count -= 1;
                }
            }
        }
        for inode in gone {
            self.sockets.remove(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(sockets: &[(u64, u32)]) -> ServedSockets {
        let mut serving = ServedSockets::new(SavedServedSockets::unsaved());
        for (inode, person) in sockets {
            serving.insert(*inode, &Arc::new(BudgetOwner::Person(*person)));
        }
        serving
    }

    fn left(sockets: &[(u64, u32)], max_sockets: usize) -> Vec<u64> {
        let mut serving = serving(sockets);
        serving.make_room(max_sockets);
        serving.sockets.into_keys().collect()
    }

    #[test]
    fn drops_oldest_of_the_largest_owner() {
        let sockets = [(1, 7), (2, 8), (3, 9), (4, 9), (5, 9), (6, 9), (7, 8)];
        assert_eq!(left(&sockets, 7), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(left(&sockets, 6), [1, 2, 4, 5, 6, 7]);
        assert_eq!(left(&sockets, 5), [1, 2, 5, 6, 7]);
        assert_eq!(left(&sockets, 4), [1, 5, 6, 7]);
        assert_eq!(left(&sockets, 3), [1, 6, 7]);
        assert_eq!(left(&sockets, 0), [0; 0]);
    }

    #[test]
    fn many_sockets_of_one_owner_displace_no_others() {
        let mut serving = serving(&[(1, 70_002)]);
        let flood = Arc::new(BudgetOwner::Person(70_001));
        for inode in 2..=MAX_SOCKETS as u64 + 10 {
            serving.insert(inode, &flood);
        }
        serving.save_new();
        assert_eq!(serving.sockets.len(), MAX_SOCKETS);
        assert!(serving.contains(1) && !serving.contains(2));
    }
}
