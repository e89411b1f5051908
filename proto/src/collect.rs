//! Collects into ordered maps and sets, and sorts slices, with little code for each type.
//!
//! `collect` into a map sorts first, and std compiles its stable sort again for each type of element
//! and each comparison: four to five kilobytes of program each. This module fills maps by inserting,
//! and sorts slices by one sort of positions, after which it swaps the elements into place.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Collects pairs into a map. The last of several pairs with the same key stays.
pub trait IntoMap<K: Ord, V>: Iterator<Item = (K, V)> + Sized {
    /// Like `collect`.
    fn into_map(self) -> BTreeMap<K, V> {
        let mut map = BTreeMap::new();
        self.for_each(|(key, value)| {
            map.insert(key, value);
        });
        map
    }
}

impl<K: Ord, V, I: Iterator<Item = (K, V)>> IntoMap<K, V> for I {}

/// Collects items into a set.
pub trait IntoSet<T: Ord>: Iterator<Item = T> + Sized {
    /// Like `collect`.
    fn into_set(self) -> BTreeSet<T> {
        let mut set = BTreeSet::new();
        self.for_each(|item| {
            set.insert(item);
        });
        set
    }
}

impl<T: Ord, I: Iterator<Item = T>> IntoSet<T> for I {}

/// Keeps some entries of a map.
pub trait RetainEntries<K, V> {
    /// Like `retain`. Removal from the tree is compiled again for each kind of map, five kilobytes
    /// each: a map that loses entries is filled again instead.
    fn retain_entries(&mut self, keep: impl FnMut(&K, &mut V) -> bool);
}

impl<K: Ord, V> RetainEntries<K, V> for BTreeMap<K, V> {
    fn retain_entries(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let kept: Vec<bool> = self
            .iter_mut()
            .map(|(key, value)| keep(key, value))
            .collect();
        if kept.iter().all(|it| *it) {
            return;
        }
        let entries = std::mem::take(self).into_iter().zip(kept);
        entries.for_each(|((key, value), is_kept)| {
            if is_kept {
                self.insert(key, value);
            }
        });
    }
}

/// Stable sorts of slices. Each method works as the method of std without `indirect` in its name.
pub trait SortIndirect<T> {
    /// Like `sort`.
    fn sort_indirect(&mut self)
    where
        T: Ord;

    /// Like `sort_by`.
    fn sort_indirect_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Like `sort_by_key`.
    fn sort_indirect_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortIndirect<T> for [T] {
    fn sort_indirect(&mut self)
    where
        T: Ord,
    {
        self.sort_indirect_by(T::cmp);
    }

    fn sort_indirect_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut order = sorted_positions(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        for start in 0..order.len() {
            let mut hole = start;
            loop {
                let source = std::mem::replace(&mut order[hole], hole);
                if source == start || source == hole {
                    break;
                }
                self.swap(hole, source);
                hole = source;
            }
        }
    }

    fn sort_indirect_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_indirect_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// The positions from 0 to `len`, sorted by `compare`.
fn sorted_positions(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorts_as_std(items in proptest::collection::vec((0_u8..6, any::<u16>()), 0..80)) {
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            let mut sorted = items.clone();
            sorted.sort_indirect_by_key(|(key, _)| *key);
            prop_assert_eq!(&sorted, &expected);
            sorted.sort_indirect();
            expected.sort();
            prop_assert_eq!(sorted, expected);
        }
    }

    #[test]
    fn last_duplicate_key_stays() {
        let pairs = [(2, 'a'), (1, 'b'), (2, 'c')];
        let collected: BTreeMap<_, _> = pairs.into_iter().collect();
        assert_eq!(pairs.into_iter().into_map(), collected);
        assert_eq!([2, 1, 2].into_iter().into_set(), BTreeSet::from([1, 2]));
    }
}
