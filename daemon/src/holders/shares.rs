//! Whose the processes are that hold devices. There is room for so many, and one
//! user's must not take the place of the others'.

use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// The holders that are kept, and the user of each.
#[derive(Debug, Default)]
pub(super) struct Shares {
    users: BTreeMap<u32, BTreeSet<ProcessKey>>,
    /// There may be as many users as holders: one may have many (subordinate users).
    user_of: BTreeMap<ProcessKey, u32>,
}

impl Shares {
    pub(super) fn add(&mut self, uid: u32, key: ProcessKey) {
        self.remove(&key);
        self.user_of.insert(key, uid);
        self.users.entry(uid).or_default().insert(key);
    }

    pub(super) fn remove(&mut self, key: &ProcessKey) {
        let Some(uid) = self.user_of.remove(key) else {
            return;
        };
        if let Some(keys) = self.users.get_mut(&uid) {
            keys.remove(key);
            if keys.is_empty() {
                self.users.remove(&uid);
            }
        }
    }

    /// Keeps only these.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&ProcessKey) -> bool) {
        let all: Vec<ProcessKey> = self.user_of.keys().copied().collect();
        for key in all.iter().filter(|key| !is_kept(key)) {
            self.remove(key);
        }
    }

    /// Who has to go so that one more of this user finds room: one of the user who
    /// has most, unless that leaves them fewer than the other has then.
    pub(super) fn gives_way_to(&self, uid: u32) -> Option<ProcessKey> {
        let has = self.users.get(&uid).map_or(0, BTreeSet::len);
        let most = self.users.values().max_by_key(|keys| keys.len())?;
        let last = most.last().copied();
        last.filter(|_| most.len() > has + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32) -> ProcessKey {
        let start_ticks = 1;
        ProcessKey { pid, start_ticks }
    }

    #[test]
    fn who_has_most_gives_way_until_all_have_the_same() {
        let mut shares = Shares::default();
        assert_eq!(shares.gives_way_to(1), None);
        for pid in 1..=4 {
            shares.add(1, key(pid));
        }
        assert_eq!(shares.gives_way_to(1), None);
        for (pid, gives_way) in [(7, 4), (8, 3)] {
            assert_eq!(shares.gives_way_to(2), Some(key(gives_way)));
            shares.remove(&key(gives_way));
            shares.add(2, key(pid));
        }
        assert_eq!(shares.gives_way_to(2), None);
        assert_eq!(shares.gives_way_to(3), Some(key(8)));
        shares.retain(|it| *it == key(2));
        assert_eq!(shares.gives_way_to(2), None);
    }
}
