//! Who is next? One of each in turn, so that the many things of one person keep nobody else
//! waiting, and take nobody else's place.

use gpukill_proto::collect::SortIndirect as _;
use std::collections::BTreeMap;

/// All of these: first one of each share, then a second one of each that has more, and so
/// on. Within a share their order stays. The first so many are thus shared out evenly.
#[must_use]
pub fn in_turns<S: Ord, T>(things: impl IntoIterator<Item = (S, T)>) -> Vec<T> {
    let mut counts: BTreeMap<S, usize> = BTreeMap::new();
    let with_turn = |(share, thing)| {
        let count = counts.entry(share).or_default();
        let turn = *count;
        *count += 1;
        (turn, thing)
    };
    let mut things: Vec<(usize, T)> = things.into_iter().map(with_turn).collect();
    // Stable: in each turn the shares come as they did.
    things.sort_indirect_by_key(|(turn, _)| *turn);
    things.into_iter().map(|(_, thing)| thing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_share_comes_before_a_second_of_any() {
        let things = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)];
        assert_eq!(in_turns(things), [1, 3, 5, 2, 6, 4]);
        let many = (0..1_000).map(|n| ("a", n)).chain([("b", 1_000)]);
        assert_eq!(in_turns(many)[..3], [0, 1_000, 1]);
        assert_eq!(in_turns::<(), ()>([]), []);
    }
}
