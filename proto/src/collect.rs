//! Collects into ordered maps and sets by inserting one after the other.
//!
//! `collect` sorts first, with a sort of its own for each iterator it is called on: five
//! kilobytes of program each.

use std::collections::{BTreeMap, BTreeSet};

/// Collects pairs into a map; of several with one key the last stays.
pub trait IntoMap<K: Ord, V>: Iterator<Item = (K, V)> + Sized {
    /// As `collect`.
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
    /// As `collect`.
    fn into_set(self) -> BTreeSet<T> {
        let mut set = BTreeSet::new();
        self.for_each(|item| {
            set.insert(item);
        });
        set
    }
}

impl<T: Ord, I: Iterator<Item = T>> IntoSet<T> for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_one_key_stays_as_in_std() {
        let pairs = [(2, 'a'), (1, 'b'), (2, 'c')];
        let collected: BTreeMap<_, _> = pairs.into_iter().collect();
        assert_eq!(pairs.into_iter().into_map(), collected);
        assert_eq!([2, 1, 2].into_iter().into_set(), BTreeSet::from([1, 2]));
    }
}
