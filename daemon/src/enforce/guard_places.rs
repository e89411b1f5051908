//! The places of the guard, by the person whose jobs it ends. They are its own: no client
//! takes one, and it takes none of theirs.

use gpukill_policy::guard::PersonKey;
use gpukill_policy::guard::places::has_place;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places that are taken, by person. Clones count together.
#[derive(Clone, Default)]
pub(super) struct GuardPlaces(Arc<Mutex<BTreeMap<PersonKey, usize>>>);

/// One place, given back when dropped.
pub(super) struct GuardPlace {
    places: GuardPlaces,
    person: PersonKey,
}

impl GuardPlaces {
    /// A place to end a job of this person, if there is one.
    pub(super) fn take(&self, person: &PersonKey) -> Option<GuardPlace> {
        let mut taken = self.lock();
        let of_person = taken.get(person).copied().unwrap_or(0);
        if !has_place(of_person, taken.values().sum()) {
            return None;
        }
        taken.insert(person.clone(), of_person + 1);
        Some(GuardPlace {
            places: self.clone(),
            person: person.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PersonKey, usize>> {
        // Nothing panics while it holds this lock; if something did, the counts in it are
        // whole all the same.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GuardPlace {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(of_person) = taken.get_mut(&self.person) {
            *of_person -= 1;
        }
        taken.retain(|_, of_person| *of_person > 0);
    }
}
