//! The owners of the processes that hold devices. There is room for so many of them and for so
//! many of their descriptors, and what one person has must not take the place of others'.

use super::{DeviceNumber, Open};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeMap;

/// The descriptors that are kept of all processes of one person: twice what is read of one
/// device and process. Each takes 250 bytes, here and where clients are told apart.
const OPENS_OF_PERSON: usize = 16_386;

/// The descriptors that are kept of all persons: 16 MB.
const OPENS_OF_ALL: usize = 65_536;

/// The holders that are kept, and the person of each.
#[derive(Debug, Default)]
pub(super) struct Shares {
    persons: BTreeMap<u32, Person>,
    /// There may be as many persons as holders.
    person_of: BTreeMap<ProcessKey, u32>,
    /// The descriptors of all.
    opens: usize,
}

#[derive(Debug, Default)]
struct Person {
    /// How many descriptors are kept of each process.
    holders: BTreeMap<ProcessKey, usize>,
    opens: usize,
    /// How many are kept of one device and process; `None` where all are.
    level: Option<usize>,
}

/// A person has more descriptors than are kept: of each device and process so many stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) holders: Vec<ProcessKey>,
    /// How many may stay of them all.
    most: usize,
    person: u32,
}

impl Shares {
    pub(super) fn add(&mut self, person: u32, key: ProcessKey, opens: usize) {
        let before = self.person_of.get(&key);
        if before.is_some_and(|before| *before != person) {
            self.remove(&key);
        }
        self.person_of.insert(key, person);
        self.opens += opens;
        let of = self.persons.entry(person).or_default();
        let before = of.holders.insert(key, opens).unwrap_or(0);
        of.opens = of.opens + opens - before;
        self.opens -= before;
    }

    pub(super) fn remove(&mut self, key: &ProcessKey) {
        let Some(person) = self.person_of.remove(key) else {
            return;
        };
        if let Some(of) = self.persons.get_mut(&person) {
            let opens = of.holders.remove(key).unwrap_or(0);
            of.opens -= opens;
            self.opens -= opens;
            if of.holders.is_empty() {
                self.persons.remove(&person);
            }
        }
    }

    /// So many are kept of this one now.
    pub(super) fn recount(&mut self, key: &ProcessKey, opens: usize) {
        if let Some(person) = self.person_of.get(key).copied() {
            self.add(person, *key, opens);
        }
    }

    /// Keeps only these.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&ProcessKey) -> bool) {
        let all: Vec<ProcessKey> = self.person_of.keys().copied().collect();
        for key in all.iter().filter(|key| !is_kept(key)) {
            self.remove(key);
        }
    }

    /// Who has to go so that one more of this person finds room: one of the person who
    /// has most, unless that leaves them fewer than the other has then.
    pub(super) fn gives_way_to(&self, person: u32) -> Option<ProcessKey> {
        let has = self.persons.get(&person).map_or(0, |of| of.holders.len());
        let most = self.persons.values().max_by_key(|of| of.holders.len())?;
        let last = most.holders.keys().next_back().copied();
        last.filter(|_| most.holders.len() > has + 1)
    }

    /// How many descriptors are kept of one device and process of this person.
    pub(super) fn level(&self, person: u32) -> usize {
        let level = self.persons.get(&person).and_then(|of| of.level);
        level.unwrap_or(usize::MAX)
    }

    /// Whose descriptors are to be cut after this person had some more: theirs, or where
    /// all have too many, those of who has most. Not of who has one of each already.
    pub(super) fn to_cut(&self, person: u32) -> Option<Cut> {
        let cut = |person: u32, most| {
            let of = self.persons.get(&person)?;
            (of.opens > most && of.level != Some(1)).then(|| Cut {
                holders: of.holders.keys().copied().collect(),
                // With room for more: not each one more is a reason to cut.
                most: most / 4 * 3,
                person,
            })
        };
        if let Some(own) = cut(person, OPENS_OF_PERSON) {
            return Some(own);
        }
        if self.opens <= OPENS_OF_ALL {
            return None;
        }
        let may_give = |(_, of): &(&u32, &Person)| of.level != Some(1);
        let persons = self.persons.iter().filter(may_give);
        let (most, of) = persons.max_by_key(|(_, of)| of.opens)?;
        cut(*most, of.opens / 2)
    }

    /// So many stay of each device and process of these from now on.
    pub(super) fn lower(&mut self, cut: &Cut, level: usize) {
        if let Some(of) = self.persons.get_mut(&cut.person) {
            of.level = Some(level);
        }
    }

    /// Those who have little now may have all again. It shows at the next look at each.
    pub(super) fn relent(&mut self) {
        for of in self.persons.values_mut() {
            if of.opens < OPENS_OF_PERSON / 4 && self.opens < OPENS_OF_ALL / 2 {
                of.level = None;
            }
        }
    }
}

impl Cut {
    /// How many may stay of each device and process, so that all have the same where they
    /// need it; one at least.
    pub(super) fn level<'a>(&self, opens: impl Iterator<Item = &'a [Open]>) -> usize {
        let mut counts: Vec<usize> = opens.flat_map(counts).collect();
        counts.sort_unstable();
        let mut left = self.most;
        for (count, others) in counts.iter().zip((1..=counts.len()).rev()) {
            let level = left / others;
            if *count > level {
                return level.max(1);
            }
            left -= count;
        }
        usize::MAX
    }
}

fn counts(opens: &[Open]) -> Vec<usize> {
    let mut counts: BTreeMap<DeviceNumber, usize> = BTreeMap::new();
    for open in opens {
        *counts.entry(open.number).or_default() += 1;
    }
    counts.into_values().collect()
}

/// Keeps so many of each device. Whether there were more.
pub(super) fn cut(opens: &mut Vec<Open>, level: usize) -> bool {
    let before = opens.len();
    if before > level {
        let mut kept: BTreeMap<DeviceNumber, usize> = BTreeMap::new();
        opens.retain(|open| {
            let kept = kept.entry(open.number).or_default();
            *kept += 1;
            *kept <= level
        });
        opens.shrink_to_fit();
    }
    opens.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32) -> ProcessKey {
        let start_ticks = 1;
        ProcessKey { pid, start_ticks }
    }

    /// So many descriptors of a device.
    fn opens(minor: u32, many: u32) -> Vec<Open> {
        let number = DeviceNumber { major: 226, minor };
        let open = |fd| Open {
            number,
            fd,
            thread: None,
        };
        (0..many).map(open).collect()
    }

    #[test]
    fn who_has_most_gives_way_until_all_have_the_same() {
        let mut shares = Shares::default();
        assert_eq!(shares.gives_way_to(1), None);
        for pid in 1..=4 {
            shares.add(1, key(pid), 1);
        }
        assert_eq!(shares.gives_way_to(1), None);
        for (pid, gives_way) in [(7, 4), (8, 3)] {
            assert_eq!(shares.gives_way_to(2), Some(key(gives_way)));
            shares.remove(&key(gives_way));
            shares.add(2, key(pid), 1);
        }
        assert_eq!(shares.gives_way_to(2), None);
        assert_eq!(shares.gives_way_to(3), Some(key(8)));
        shares.retain(|it| *it == key(2));
        assert_eq!(shares.gives_way_to(2), None);
    }

    #[test]
    fn a_person_with_too_many_descriptors_is_cut_and_where_all_have_who_has_most() {
        let mut shares = Shares::default();
        shares.add(1, key(1), OPENS_OF_PERSON);
        shares.add(2, key(2), 5);
        assert_eq!(shares.to_cut(1), None);
        shares.add(1, key(3), 1);
        let cut = shares.to_cut(1).unwrap();
        assert_eq!((cut.person, &cut.holders), (1, &vec![key(1), key(3)]));
        assert_eq!(shares.to_cut(2), None);
        shares.lower(&cut, 1);
        // There is no less than one of each.
        assert_eq!((shares.to_cut(1), shares.level(1)), (None, 1));
        shares.remove(&key(3));
        for person in 10..14 {
            shares.add(person, key(person), 12_286 + 1);
        }
        assert_eq!(shares.to_cut(2).map(|cut| cut.person), Some(13));
        shares.retain(|it| *it == key(2) || *it == key(13));
        assert_eq!(shares.to_cut(2), None);
    }

    #[test]
    fn who_needs_least_keeps_all_and_who_has_most_is_cut() {
        let cut = |most| Cut {
            holders: Vec::new(),
            most,
            person: 1,
        };
        let both = [opens(1, 30), opens(2, 2)].concat();
        let processes = [both, opens(1, 30)];
        let level = |most| cut(most).level(processes.iter().map(Vec::as_slice));
        assert_eq!(
            [level(62), level(42), level(3), level(0)],
            [usize::MAX, 20, 1, 1]
        );
        let mut some = processes[0].clone();
        assert!(super::cut(&mut some, 20));
        assert_eq!(some, [opens(1, 20), opens(2, 2)].concat());
        assert!(!super::cut(&mut some, 20));
    }

    #[test]
    fn who_has_little_again_is_cut_no_more() {
        let mut shares = Shares::default();
        shares.add(1, key(1), OPENS_OF_PERSON);
        shares.add(1, key(2), 1);
        let cut = shares.to_cut(1).unwrap();
        shares.lower(&cut, 7);
        shares.relent();
        assert_eq!(shares.level(1), 7);
        shares.remove(&key(1));
        shares.relent();
        assert_eq!(shares.level(1), usize::MAX);
    }
}
