//! Interleaves items fairly: one of each person in turn, so that many items of one
//! person delay no other and take no other's place.

use gpukill_proto::collect::SortIndirect as _;
use std::collections::BTreeMap;

/// Returns all items: first one of each share, then a second one of each share that has
/// more, and so on. Within a share the order stays. Any prefix of the result is shared
/// evenly.
#[must_use]
pub fn interleave<S: Ord, T>(items: impl IntoIterator<Item = (S, T)>) -> Vec<T> {
    let mut counts: BTreeMap<S, usize> = BTreeMap::new();
    let with_turn = |(share, item)| {
        let count = counts.entry(share).or_default();
        let turn = *count;
        *count += 1;
        (turn, item)
    };
    let mut items: Vec<(usize, T)> = items.into_iter().map(with_turn).collect();
    // The sort is stable: in each turn the shares keep their order.
    items.sort_indirect_by_key(|(turn, _)| *turn);
    items.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_alternate() {
        let items = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)];
        assert_eq!(interleave(items), [1, 3, 5, 2, 6, 4]);
        let many = (0..1_000).map(|n| ("a", n)).chain([("b", 1_000)]);
        assert_eq!(interleave(many)[..3], [0, 1_000, 1]);
        assert_eq!(interleave::<(), ()>([]), []);
    }
}
