//! Maps subordinate user ids to people by the ranges of `subuid(5)`, which root assigns
//! to people for the users of their containers. The ids attribute and give no right.

use gpukill_proto::collect::RetainEntries as _;
use std::collections::BTreeMap;

/// Maximum number of ranges: a larger file was not written by the usual tools.
const MAX_RANGES: usize = 10_000;

/// The range of one line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubordinateRange<'a> {
    /// The name or number of a user.
    pub person: &'a str,
    /// The first and the last id of the range.
    pub ids: (u32, u32),
}

/// Parses the valid lines of the file. An invalid line assigns nothing.
pub fn parse_lines(text: &str) -> impl Iterator<Item = SubordinateRange<'_>> {
    text.lines().filter_map(parse_line).take(MAX_RANGES)
}

fn parse_line(line: &str) -> Option<SubordinateRange<'_>> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u32>().ok()).flatten()
    };
    let mut parts = line.trim().split(':');
    let (person, first, count) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || person.is_empty() {
        return None;
    }
    let first = number(first).filter(|first| *first > 0)?;
    let last = first.checked_add(number(count)?.checked_sub(1)?)?;
    // The highest number is not a valid user id.
    (last < u32::MAX).then_some(SubordinateRange {
        person,
        ids: (first, last),
    })
}

/// The person of each subordinate id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubordinateMap {
    /// First id of a range, to its last id and its person. Ranges do not overlap.
    ranges: BTreeMap<u32, (u32, u32)>,
}

impl SubordinateMap {
    /// Builds the map from ranges and their people. An id in the ranges of several
    /// people belongs to none of them, and neither does a range that root keeps for
    /// containers of others.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = (u32, (u32, u32))>) -> Self {
        // The ids where ranges start and end, with the people to add or remove there.
        let mut changes: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
        for (person, (first, last)) in ranges {
            changes.entry(first).or_default().push((person, true));
            let after = last.saturating_add(1);
            changes.entry(after).or_default().push((person, false));
        }
        let mut ranges = BTreeMap::new();
        let mut people: BTreeMap<u32, usize> = BTreeMap::new();
        let mut since = 0;
        for (at, changed) in changes {
            if let (1, Some(person)) = (people.len(), people.keys().next())
                && *person != 0
            {
                ranges.insert(since, (at - 1, *person));
            }
            for (person, begins) in changed {
                let count = people.entry(person).or_default();
                *count = match begins {
                    true => *count + 1,
                    false => count.saturating_sub(1),
                };
            }
            people.retain_entries(|_, count| *count > 0);
            since = at;
        }
        Self { ranges }
    }

    /// Returns the person of this id; `None` where it is no subordinate id.
    #[must_use]
    pub fn person_of(&self, uid: u32) -> Option<u32> {
        let (_, (last, person)) = self.ranges.range(..=uid).next_back()?;
        (uid <= *last).then_some(*person)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_lines_assign_nothing() {
        let range = |person, first, last| {
            vec![SubordinateRange {
                person,
                ids: (first, last),
            }]
        };
        for (text, expected) in [
            ("carol:60000:200", range("carol", 60_000, 60_199)),
            ("1002:60000:1\n", range("1002", 60_000, 60_000)),
            (
                "carol:4294967294:1",
                range("carol", u32::MAX - 1, u32::MAX - 1),
            ),
            ("# carol:60000", vec![]),
            ("carol:60000:200:1", vec![]),
            ("carol:60000:0", vec![]),
            ("carol:0:200", vec![]),
            ("carol:+6:200", vec![]),
            ("carol:60000:", vec![]),
            (":60000:200", vec![]),
            ("carol:4294967294:2", vec![]),
            ("carol:60000:4294967295", vec![]),
        ] {
            assert_eq!(parse_lines(text).collect::<Vec<_>>(), expected, "{text}");
        }
        let many = "carol:60000:200\n".repeat(MAX_RANGES + 1);
        assert_eq!(parse_lines(&many).count(), MAX_RANGES);
    }

    proptest! {
        #[test]
        fn id_belongs_to_its_only_person(
            ranges in prop::collection::vec((0u32..4, 1u32..40, 0u32..20), 0..8),
        ) {
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(person, first, more)| (person, (first, first + more)))
                .collect();
            let found = SubordinateMap::new(ranges.iter().copied());
            for uid in 0..70 {
                let has_it = |(_, (first, last)): &&(u32, (u32, u32))| (*first..=*last).contains(&uid);
                let mut people: Vec<u32> = ranges.iter().filter(has_it).map(|it| it.0).collect();
                people.sort_unstable();
                people.dedup();
                let expected = match people[..] {
                    [person] if person != 0 => Some(person),
                    _ => None,
                };
                prop_assert_eq!(found.person_of(uid), expected, "{}", uid);
            }
        }
    }
}
