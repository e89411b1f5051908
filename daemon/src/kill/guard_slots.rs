//! The kill slots of the guard, counted by the person whose jobs it ends. They are apart from the
//! slots of clients.

use gpukill_policy::guard::PersonKey;
use gpukill_policy::guard::concurrency::has_slot;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slots in use, by person. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct GuardSlots(Arc<Mutex<BTreeMap<PersonKey, usize>>>);

/// One slot, released when dropped.
pub(super) struct GuardSlot {
    slots: GuardSlots,
    person: PersonKey,
}

impl GuardSlots {
    /// A slot to end a job of this person, if one is free.
    pub(super) fn take(&self, person: &PersonKey) -> Option<GuardSlot> {
        let mut taken = self.lock();
        let of_person = taken.get(person).copied().unwrap_or(0);
        if !has_slot(of_person, taken.values().sum()) {
            return None;
        }
        taken.insert(person.clone(), of_person + 1);
        Some(GuardSlot {
            slots: self.clone(),
            person: person.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PersonKey, usize>> {
        // No code panics while it holds this lock; if some did, the counts in it would still be
        // whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GuardSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        if let Some(of_person) = taken.get_mut(&self.person) {
            *of_person -= 1;
        }
        taken.retain(|_, of_person| *of_person > 0);
    }
}
