//! Which listening sockets others have been connected to: of each, whose job it is, so that
//! one person's many sockets take nobody else's place.

use super::budget::Share;
use super::{Keep, Kept};
use gpukill_proto::collect::IntoSet as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// As many sockets are remembered. Beyond that those of whom has most are forgotten, and of
/// them the oldest first.
const MOST: usize = 65_536;

/// What is remembered.
pub(super) struct Serving {
    /// Whose it is, by inode.
    sockets: BTreeMap<u64, Arc<Share>>,
    has_more: bool,
    keep: Keep,
}

impl Serving {
    /// Whose those are that were kept before is not known until their jobs are looked at.
    pub(super) fn new(kept: Kept) -> Self {
        let unknown = Arc::new(Share::Unknown);
        let sockets = kept.sockets.into_iter();
        Self {
            sockets: sockets.map(|it| (it, Arc::clone(&unknown))).collect(),
            has_more: false,
            keep: kept.keep,
        }
    }

    /// Whether others have been connected to this one.
    pub(super) fn contains(&self, inode: u64) -> bool {
        self.sockets.contains_key(&inode)
    }

    /// Others have been connected to this one, which is of a job of this share.
    pub(super) fn insert(&mut self, inode: u64, share: &Arc<Share>) {
        let before = self.sockets.insert(inode, Arc::clone(share));
        self.has_more |= before.is_none();
    }

    /// Makes room, and writes down what there is, where there is more than before.
    pub(super) fn write_down(&mut self) {
        self.make_room(MOST);
        if std::mem::take(&mut self.has_more) {
            let sockets: BTreeSet<u64> = self.sockets.keys().copied().into_set();
            (self.keep)(&sockets);
        }
    }

    fn make_room(&mut self, most: usize) {
        let Some(surplus) = self.sockets.len().checked_sub(most).filter(|it| *it > 0) else {
            return;
        };
        let mut counts: BTreeMap<&Share, usize> = BTreeMap::new();
        for share in self.sockets.values() {
            *counts.entry(share).or_default() += 1;
        }
        // So many are cut where all that have more are cut to this level.
        let above = |level: usize| -> usize {
            let counts = counts.values();
            counts.map(|count| count.saturating_sub(level)).sum()
        };
        // The lowest at which no more are cut than must.
        let (mut low, mut high) = (0, self.sockets.len());
        while low < high {
            let level = usize::midpoint(low, high);
            match above(level) <= surplus {
                true => high = level,
                false => low = level + 1,
            }
        }
        let mut gone = BTreeSet::new();
        // The last of it from those that have as many then.
        for level in [low, low.saturating_sub(1)] {
            for (inode, share) in &self.sockets {
                if let Some(count) = counts.get_mut(&**share)
                    && *count > level
                    && gone.len() < surplus
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

    fn serving(sockets: &[(u64, u32)]) -> Serving {
        let mut serving = Serving::new(Kept::nowhere());
        for (inode, person) in sockets {
            serving.insert(*inode, &Arc::new(Share::Person(*person)));
        }
        serving
    }

    fn left(sockets: &[(u64, u32)], most: usize) -> Vec<u64> {
        let mut serving = serving(sockets);
        serving.make_room(most);
        serving.sockets.into_keys().collect()
    }

    #[test]
    fn of_too_many_the_oldest_of_whom_has_most_are_forgotten() {
        let sockets = [(1, 7), (2, 8), (3, 9), (4, 9), (5, 9), (6, 9), (7, 8)];
        assert_eq!(left(&sockets, 7), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(left(&sockets, 6), [1, 2, 4, 5, 6, 7]);
        assert_eq!(left(&sockets, 5), [1, 2, 5, 6, 7]);
        assert_eq!(left(&sockets, 4), [1, 5, 6, 7]);
        assert_eq!(left(&sockets, 3), [1, 6, 7]);
        assert_eq!(left(&sockets, 0), [0; 0]);
    }

    #[test]
    fn one_persons_many_listeners_do_not_make_anothers_forgotten() {
        let mut serving = serving(&[(1, 70_002)]);
        let flood = Arc::new(Share::Person(70_001));
        for inode in 2..=MOST as u64 + 10 {
            serving.insert(inode, &flood);
        }
        serving.write_down();
        assert_eq!(serving.sockets.len(), MOST);
        assert!(serving.contains(1) && !serving.contains(2));
    }
}
