//! Shares the room for holders and their descriptors between persons: one person's files must not
//! displace those of others.

use super::{DeviceNumber, OpenDescriptor};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeMap;

/// How many descriptors of one person are kept: twice what is read of one device and process. Each
/// takes 250 bytes, here and where clients are distinguished.
const MAX_OPENS_PER_PERSON: usize = 16_386;

/// How many descriptors of all persons are kept: 16 MB.
const MAX_OPENS: usize = 65_536;

/// The kept holders, and the person of each.
#[derive(Debug, Default)]
pub(super) struct DescriptorQuota {
    persons: BTreeMap<u32, PersonQuota>,
    /// There may be as many persons as holders.
    person_of: BTreeMap<ProcessKey, u32>,
    opens: usize,
}

#[derive(Debug, Default)]
struct PersonQuota {
    /// The number of kept descriptors of each process.
    holders: BTreeMap<ProcessKey, usize>,
    opens: usize,
    /// How many are kept per device and process; `None` for all.
    level: Option<usize>,
}

/// A person with more descriptors than are kept, which must be reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuotaExcess {
    pub(super) holders: Vec<ProcessKey>,
    /// How many may stay in all.
    total: usize,
    person: u32,
}

impl DescriptorQuota {
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

    /// Sets the number of kept descriptors of this process.
    pub(super) fn set_count(&mut self, key: &ProcessKey, opens: usize) {
        if let Some(person) = self.person_of.get(key).copied() {
            self.add(person, *key, opens);
        }
    }

    /// Keeps only these processes.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&ProcessKey) -> bool) {
        let all: Vec<ProcessKey> = self.person_of.keys().copied().collect();
        for key in all.iter().filter(|key| !is_kept(key)) {
            self.remove(key);
        }
    }

    /// The holder to drop so that this person can have one more: a holder of the person with the
    /// most, unless that would leave that person with fewer.
    pub(super) fn holder_to_evict(&self, person: u32) -> Option<ProcessKey> {
        let has = self.persons.get(&person).map_or(0, |of| of.holders.len());
        let largest = self.persons.values().max_by_key(|of| of.holders.len())?;
        let last = largest.holders.keys().next_back().copied();
        last.filter(|_| largest.holders.len() > has + 1)
    }

    /// How many descriptors are kept per device and process of this person.
    pub(super) fn level(&self, person: u32) -> usize {
        let level = self.persons.get(&person).and_then(|of| of.level);
        level.unwrap_or(usize::MAX)
    }

    /// The person to reduce after this person got more descriptors: this person, or the one with
    /// the most where the total is too high. A person with one descriptor of each is not reduced.
    pub(super) fn excess(&self, person: u32) -> Option<QuotaExcess> {
        let cut = |person: u32, limit| {
            let of = self.persons.get(&person)?;
            (of.opens > limit && of.level != Some(1)).then(|| QuotaExcess {
                holders: of.holders.keys().copied().collect(),
                // Leaves some room, so that not each new descriptor causes a reduction.
                total: limit / 4 * 3,
                person,
            })
        };
        if let Some(own) = cut(person, MAX_OPENS_PER_PERSON) {
            return Some(own);
        }
        if self.opens <= MAX_OPENS {
            return None;
        }
        let may_give = |(_, of): &(&u32, &PersonQuota)| of.level != Some(1);
        let persons = self.persons.iter().filter(may_give);
        let (largest, of) = persons.max_by_key(|(_, of)| of.opens)?;
        cut(*largest, of.opens / 2)
    }

    /// Sets how many descriptors per device and process of this person are kept.
    pub(super) fn set_level(&mut self, cut: &QuotaExcess, level: usize) {
        if let Some(of) = self.persons.get_mut(&cut.person) {
            of.level = Some(level);
        }
    }

    /// Lifts the limits of persons with few descriptors. Takes effect at the next scan of each
    /// process.
    pub(super) fn lift_limits(&mut self) {
        for of in self.persons.values_mut() {
            if of.opens < MAX_OPENS_PER_PERSON / 4 && self.opens < MAX_OPENS / 2 {
                of.level = None;
            }
        }
    }
}

impl QuotaExcess {
    /// How many descriptors may stay per device and process, equal for all that need it; at least
    /// one.
    pub(super) fn level<'a>(&self, opens: impl Iterator<Item = &'a [OpenDescriptor]>) -> usize {
        let mut counts: Vec<usize> = opens.flat_map(counts_by_device).collect();
        counts.sort_indirect();
        let mut left = self.total;
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

fn counts_by_device(opens: &[OpenDescriptor]) -> Vec<usize> {
    let mut counts: BTreeMap<DeviceNumber, usize> = BTreeMap::new();
    for open in opens {
        *counts.entry(open.number).or_default() += 1;
    }
    counts.into_values().collect()
}

/// Keeps this many descriptors per device. Returns whether there were more.
pub(super) fn truncate_opens(opens: &mut Vec<OpenDescriptor>, level: usize) -> bool {
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

    fn opens(minor: u32, many: u32) -> Vec<OpenDescriptor> {
        let number = DeviceNumber { major: 226, minor };
        let open = |fd| OpenDescriptor {
            number,
            fd,
            thread: None,
        };
        (0..many).map(open).collect()
    }

    #[test]
    fn person_with_most_holders_gives_way() {
        let mut shares = DescriptorQuota::default();
        assert_eq!(shares.holder_to_evict(1), None);
        for pid in 1..=4 {
            shares.add(1, key(pid), 1);
        }
        assert_eq!(shares.holder_to_evict(1), None);
        for (pid, gives_way) in [(7, 4), (8, 3)] {
            assert_eq!(shares.holder_to_evict(2), Some(key(gives_way)));
            shares.remove(&key(gives_way));
            shares.add(2, key(pid), 1);
        }
        assert_eq!(shares.holder_to_evict(2), None);
        assert_eq!(shares.holder_to_evict(3), Some(key(8)));
        shares.retain(|it| *it == key(2));
        assert_eq!(shares.holder_to_evict(2), None);
    }

    #[test]
    fn excess_person_is_reduced_first() {
        let mut shares = DescriptorQuota::default();
        shares.add(1, key(1), MAX_OPENS_PER_PERSON);
        shares.add(2, key(2), 5);
        assert_eq!(shares.excess(1), None);
        shares.add(1, key(3), 1);
        let cut = shares.excess(1).unwrap();
        assert_eq!((cut.person, &cut.holders), (1, &vec![key(1), key(3)]));
        assert_eq!(shares.excess(2), None);
        shares.set_level(&cut, 1);
        // At least one of each stays.
        assert_eq!((shares.excess(1), shares.level(1)), (None, 1));
        shares.remove(&key(3));
        for person in 10..14 {
            shares.add(person, key(person), 12_286 + 1);
        }
        assert_eq!(shares.excess(2).map(|cut| cut.person), Some(13));
        shares.retain(|it| *it == key(2) || *it == key(13));
        assert_eq!(shares.excess(2), None);
    }

    #[test]
    fn small_needs_are_kept_whole() {
        let cut = |largest| QuotaExcess {
            holders: Vec::new(),
            total: largest,
            person: 1,
        };
        let both = [opens(1, 30), opens(2, 2)].concat();
        let processes = [both, opens(1, 30)];
        let level = |limit| cut(limit).level(processes.iter().map(Vec::as_slice));
        assert_eq!(
            [level(62), level(42), level(3), level(0)],
            [usize::MAX, 20, 1, 1]
        );
        let mut some = processes[0].clone();
        assert!(truncate_opens(&mut some, 20));
        assert_eq!(some, [opens(1, 20), opens(2, 2)].concat());
        assert!(!truncate_opens(&mut some, 20));
    }

    #[test]
    fn limit_is_lifted_with_few_descriptors() {
        let mut shares = DescriptorQuota::default();
        shares.add(1, key(1), MAX_OPENS_PER_PERSON);
        shares.add(1, key(2), 1);
        let cut = shares.excess(1).unwrap();
        shares.set_level(&cut, 7);
        shares.lift_limits();
        assert_eq!(shares.level(1), 7);
        shares.remove(&key(1));
        shares.lift_limits();
        assert_eq!(shares.level(1), usize::MAX);
    }
}
