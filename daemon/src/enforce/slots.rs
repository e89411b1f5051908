//! How many may have something done at once: in all, and for one of them.

use super::Owner;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// In all.
    pub(super) most: usize,
    /// Of these, so many are for operators, admins and root alone: they must get
    /// through when plain users fill the rest.
    pub(super) reserved: usize,
    /// For one owner, whoever that is.
    pub(super) of_one: usize,
}

/// Places, as far as they are free. Clones count together.
#[derive(Clone)]
pub(super) struct Slots {
    places: Places,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_plain: usize,
    by_owner: BTreeMap<Owner, usize>,
}

/// One place, given back when dropped.
pub(super) struct Slot {
    slots: Slots,
    owner: Owner,
    is_plain: bool,
}

impl Slots {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            taken: Arc::default(),
        }
    }

    /// A place, if there is one.
    pub(super) fn take(&self, owner: Owner, is_privileged: bool) -> Option<Slot> {
        let Places {
            most,
            reserved,
            of_one,
        } = self.places;
        let mut taken = self.lock();
        let of_owner = taken.by_owner.get(&owner).copied().unwrap_or(0);
        let fits = taken.all < most
            && of_owner < of_one
            && (is_privileged || taken.by_plain < most.saturating_sub(reserved));
        if !fits {
            return None;
        }
        taken.all += 1;
        taken.by_plain += usize::from(!is_privileged);
        *taken.by_owner.entry(owner).or_default() += 1;
        Some(Slot {
            slots: self.clone(),
            owner,
            is_plain: !is_privileged,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it holds this lock; if something did, the counts
        // in it are whole all the same.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.all -= 1;
        taken.by_plain -= usize::from(self.is_plain);
        if let Some(of_owner) = taken.by_owner.get_mut(&self.owner) {
            *of_owner -= 1;
            if *of_owner == 0 {
                taken.by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places {
        most: 4,
        reserved: 1,
        of_one: 2,
    };

    fn plain(uid: u32) -> Owner {
        Owner {
            uid,
            contained_root: false,
        }
    }

    #[test]
    fn one_cannot_take_all_places_and_plain_users_not_the_reserved_ones() {
        let slots = Slots::new(PLACES);
        let _alices = [1, 2].map(|_| slots.take(plain(1000), false).unwrap());
        assert!(slots.take(plain(1000), false).is_none());
        let bobs = slots.take(plain(1001), false).unwrap();
        assert!(slots.take(plain(1002), false).is_none());
        let operators = slots.take(plain(1002), true).unwrap();
        assert!(slots.take(plain(1003), true).is_none());
        drop(operators);
        assert!(slots.take(plain(1002), false).is_none());
        drop(bobs);
        assert!(slots.take(plain(1002), false).is_some());
    }

    #[test]
    fn a_place_that_was_given_back_is_nobodys() {
        let slots = Slots::new(PLACES);
        drop(slots.take(plain(1000), false));
        drop(slots.take(plain(1001), true));
        let taken = slots.lock();
        assert_eq!((taken.all, taken.by_plain, taken.by_owner.len()), (0, 0, 0));
    }
}
