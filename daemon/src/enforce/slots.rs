//! How many may have something done at once: in all, and for one of them. Whoever
//! finds no place is refused, or waits for one in turn.

use gpukill_policy::access::LimitGroup;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How many there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// In all.
    pub(super) most: usize,
    /// Of these, so many are for operators, admins and root alone: they must get through
    /// when plain users fill the rest.
    pub(super) reserved: usize,
    /// For one person.
    pub(super) of_one: usize,
}

/// Places, as far as they are free. Clones count together.
#[derive(Clone)]
pub(super) struct Slots {
    places: Places,
    taken: Arc<Mutex<Taken>>,
    /// Told whenever a place is given back, or somebody waits no more.
    news: Arc<Notify>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_plain: usize,
    by_group: BTreeMap<Group, usize>,
    /// Who waits, whoever is next first. The server bounds them: each has one of its
    /// calls.
    waiting: BTreeMap<Turn, Wanted>,
    next: u64,
}

/// When it is whose turn: whoever has least comes first, and of these who came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// How many places the same group had or waited for by then.
    before: usize,
    number: u64,
}

/// Who is counted together. What a person does without their rights is in nobody's way
/// who has them.
type Group = (LimitGroup, bool);

/// For whom a place is wanted.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    group: LimitGroup,
    is_privileged: bool,
}

impl Wanted {
    const fn group(self) -> Group {
        (self.group, self.is_privileged)
    }
}

/// One place, given back when dropped.
pub(super) struct Slot {
    slots: Slots,
    group: Group,
}

impl Slots {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            taken: Arc::default(),
            news: Arc::default(),
        }
    }

    /// A place, if there is one.
    pub(super) fn take(&self, group: LimitGroup, is_privileged: bool) -> Option<Slot> {
        let wanted = Wanted {
            group,
            is_privileged,
        };
        let mut taken = self.lock();
        let fits = taken.fits(wanted, self.places);
        fits.then(|| self.give(&mut taken, wanted))
    }

    /// A place, as soon as there is one and those before have theirs; `None` where
    /// that takes longer than this. Those for whom no place would do keep nobody
    /// waiting.
    pub(super) async fn wait(
        &self,
        group: LimitGroup,
        is_privileged: bool,
        patience: Duration,
    ) -> Option<Slot> {
        let wanted = Wanted {
            group,
            is_privileged,
        };
        let mut waiting = Waiting::among(self, wanted);
        let place = async {
            loop {
                let news = self.news.notified();
                if let Some(slot) = waiting.take() {
                    return slot;
                }
                news.await;
            }
        };
        tokio::time::timeout(patience, place).await.ok()
    }

    fn give(&self, taken: &mut Taken, wanted: Wanted) -> Slot {
        taken.all += 1;
        taken.by_plain += usize::from(!wanted.is_privileged);
        *taken.by_group.entry(wanted.group()).or_default() += 1;
        Slot {
            slots: self.clone(),
            group: wanted.group(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it holds this lock; if something did, the counts
        // in it are whole all the same.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn of(&self, group: Group) -> usize {
        self.by_group.get(&group).copied().unwrap_or(0)
    }

    fn fits(&self, wanted: Wanted, places: Places) -> bool {
        self.all < places.most
            && self.of(wanted.group()) < places.of_one
            && (wanted.is_privileged || self.by_plain < places.most.saturating_sub(places.reserved))
    }
}

/// One who waits, until dropped: whoever asked may go away.
struct Waiting<'a> {
    slots: &'a Slots,
    wanted: Wanted,
    turn: Turn,
}

impl<'a> Waiting<'a> {
    fn among(slots: &'a Slots, wanted: Wanted) -> Self {
        let mut taken = slots.lock();
        let waiting = taken.waiting.values();
        let waiting = waiting
            .filter(|other| other.group() == wanted.group())
            .count();
        let turn = Turn {
            before: taken.of(wanted.group()) + waiting,
            number: taken.next,
        };
        taken.next += 1;
        taken.waiting.insert(turn, wanted);
        Self {
            slots,
            wanted,
            turn,
        }
    }

    /// The place, where there is one and it is this one's turn.
    fn take(&mut self) -> Option<Slot> {
        let mut taken = self.slots.lock();
        let places = self.slots.places;
        let mut waiting = taken.waiting.iter();
        let next = waiting.find(|(_, wanted)| taken.fits(**wanted, places));
        if next.map(|(turn, _)| *turn) != Some(self.turn) {
            return None;
        }
        taken.waiting.remove(&self.turn);
        Some(self.slots.give(&mut taken, self.wanted))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.lock().waiting.remove(&self.turn);
        self.slots.news.notify_waiters();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.all -= 1;
        taken.by_plain -= usize::from(!self.group.1);
        if let Some(of_group) = taken.by_group.get_mut(&self.group) {
            *of_group -= 1;
            if *of_group == 0 {
                taken.by_group.remove(&self.group);
            }
        }
        drop(taken);
        self.slots.news.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    const PLACES: Places = Places {
        most: 4,
        reserved: 1,
        of_one: 2,
    };

    const fn plain(uid: u32) -> LimitGroup {
        LimitGroup::Person(uid)
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
    fn nobody_else_takes_the_places_of_those_with_rights() {
        let slots = Slots::new(Places {
            most: 4,
            reserved: 2,
            of_one: 2,
        });
        let fill = |group, is_privileged| {
            let places = std::iter::from_fn(|| slots.take(group, is_privileged));
            places.collect::<Vec<Slot>>()
        };
        // A plain caller who is counted as root keeps no place from root.
        let plain = fill(plain(0), false);
        let root = fill(LimitGroup::Person(0), true);
        let operator = fill(LimitGroup::Person(1000), true);
        let counts = [plain, root, operator].map(|places| places.len());
        assert_eq!(counts, [2, 2, 0]);
    }

    #[test]
    fn a_place_that_was_given_back_is_nobodys() {
        let slots = Slots::new(PLACES);
        drop(slots.take(plain(1000), false));
        drop(slots.take(plain(1001), true));
        let taken = slots.lock();
        assert_eq!((taken.all, taken.by_plain, taken.by_group.len()), (0, 0, 0));
    }
    /// As plans have them.
    const FEW: Places = Places {
        most: 4,
        reserved: 2,
        of_one: 1,
    };

    const HOUR: Duration = Duration::from_secs(3_600);

    /// One who asks for a place, and waits.
    type Asks<'a> = futures::future::LocalBoxFuture<'a, Option<Slot>>;

    fn asks(slots: &Slots, uid: u32, is_privileged: bool) -> Asks<'_> {
        slots.wait(plain(uid), is_privileged, HOUR).boxed_local()
    }

    /// The place, where it is there by now.
    fn place(asks: &mut Asks<'_>) -> Option<Slot> {
        asks.now_or_never().flatten()
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap()
    }

    #[test]
    fn whoever_waits_gets_the_next_place_and_whoever_has_one_comes_last() {
        let (runtime, slots) = (runtime(), Slots::new(FEW));
        let _entered = runtime.enter();
        let ask = |uid| asks(&slots, uid, false);
        let mut alices = [1, 2, 3].map(|_| ask(1000));
        let [first, second, third] = &mut alices;
        let alices = place(first).unwrap();
        assert!(place(second).is_none());
        assert!(place(third).is_none());
        let bobs = place(&mut ask(1001)).unwrap();
        let (mut carol, mut dave) = (ask(1002), ask(1003));
        assert!(place(&mut carol).is_none());
        assert!(place(&mut dave).is_none());
        // Those places are for others.
        let root = place(&mut asks(&slots, 0, true)).unwrap();
        drop(alices);
        // Everybody else is before her, in the order in which they came.
        assert!(place(second).is_none());
        assert!(place(&mut dave).is_none());
        let carols = place(&mut carol).unwrap();
        drop(bobs);
        assert!(place(second).is_none());
        let daves = place(&mut dave).unwrap();
        drop((carols, daves, root));
        let alices = place(second).unwrap();
        // There is another place, and nobody else who wants it.
        assert!(place(third).is_none());
        let bobs = place(&mut ask(1001)).unwrap();
        drop(alices);
        assert!(place(third).is_some());
        drop(bobs);
    }

    #[test]
    fn whoever_goes_or_is_out_of_patience_is_in_nobodys_way() {
        let (runtime, slots) = (runtime(), Slots::new(FEW));
        let held = [1000, 1001].map(|uid| slots.take(plain(uid), false).unwrap());
        let wait = slots.wait(plain(1002), false, Duration::from_millis(1));
        assert!(runtime.block_on(wait).is_none());
        let entered = runtime.enter();
        let mut goes = asks(&slots, 1003, false);
        assert!(place(&mut goes).is_none());
        let mut stays = asks(&slots, 1004, false);
        assert!(place(&mut stays).is_none());
        drop(held);
        drop(entered);
        // Told of both, whatever comes first.
        let stays = runtime.block_on(async {
            let (stays, ()) = tokio::join!(stays, async { drop(goes) });
            stays
        });
        assert!(stays.is_some());
        assert!(slots.lock().waiting.is_empty());
    }
}
