//! Limits how many requests run at once, in all and per person, and how many process handles are
//! open at once. A request without a free slot is refused, or waits in order.

use gpukill_policy::access::LimitGroup;
use gpukill_policy::guard::PersonKey;
use gpukill_policy::guard::enforcement::concurrency::has_slot;
use gpukill_proto::collect::RetainEntries as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy)]
pub(super) struct ConcurrencyLimits {
    pub(super) total: usize,
    /// Slots of these that only operators, admins and root may use: they must get through when
    /// plain users fill the rest.
    pub(super) reserved: usize,
    pub(super) per_group: usize,
}

/// The slots and their use. Clones share them.
#[derive(Clone)]
pub(super) struct ConcurrencySlots {
    limits: ConcurrencyLimits,
    taken: Arc<Mutex<SlotUsage>>,
    /// Notified when a slot is released or a waiter leaves.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct SlotUsage {
    all: usize,
    by_plain: usize,
    by_group: BTreeMap<SlotGroup, usize>,
    /// The waiters, next first. The server bounds them: each caller has one call of this kind.
    queue: BTreeMap<QueuePosition, SlotRequest>,
    next: u64,
}

/// The order in the queue: the group with the fewest slots first, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    /// How many slots the same group had or waited for on arrival.
    before: usize,
    number: u64,
}

/// The callers that are counted together. Calls that a person makes without special rights do not
/// count against calls with them.
type SlotGroup = (LimitGroup, bool);

#[derive(Debug, Clone, Copy)]
struct SlotRequest {
    group: LimitGroup,
    is_privileged: bool,
}

impl SlotRequest {
    const fn group(self) -> SlotGroup {
        (self.group, self.is_privileged)
    }
}

/// One slot, released when dropped.
pub(super) struct ConcurrencySlot {
    slots: ConcurrencySlots,
    group: SlotGroup,
}

impl ConcurrencySlots {
    pub(super) fn new(limits: ConcurrencyLimits) -> Self {
        Self {
            limits,
            taken: Arc::default(),
            changed: Arc::default(),
        }
    }

    /// A slot, if one is free.
    pub(super) fn take(&self, group: LimitGroup, is_privileged: bool) -> Option<ConcurrencySlot> {
        let wanted = SlotRequest {
            group,
            is_privileged,
        };
        let mut taken = self.lock();
        let fits = taken.fits(wanted, self.limits);
        fits.then(|| self.grant(&mut taken, wanted))
    }

    /// Waits for a slot, behind earlier waiters; `None` on timeout. A waiter that could use no slot
    /// does not block the others.
    pub(super) async fn wait(
        &self,
        group: LimitGroup,
        is_privileged: bool,
        timeout: Duration,
    ) -> Option<ConcurrencySlot> {
        let wanted = SlotRequest {
            group,
            is_privileged,
        };
        let mut waiting = SlotWaiter::enqueue(self, wanted);
        let slot = async {
            loop {
                let change = self.changed.notified();
                if let Some(slot) = waiting.take() {
                    return slot;
                }
                change.await;
            }
        };
        tokio::time::timeout(timeout, slot).await.ok()
    }

    fn grant(&self, taken: &mut SlotUsage, wanted: SlotRequest) -> ConcurrencySlot {
        taken.all += 1;
        taken.by_plain += usize::from(!wanted.is_privileged);
        *taken.by_group.entry(wanted.group()).or_default() += 1;
        ConcurrencySlot {
            slots: self.clone(),
            group: wanted.group(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotUsage> {
        // No code panics while it holds this lock; if some did, the counts in it would still be
        // whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotUsage {
    fn count_of(&self, group: SlotGroup) -> usize {
        self.by_group.get(&group).copied().unwrap_or(0)
    }

    fn fits(&self, wanted: SlotRequest, limits: ConcurrencyLimits) -> bool {
        self.all < limits.total
            && self.count_of(wanted.group()) < limits.per_group
            && (wanted.is_privileged
                || self.by_plain < limits.total.saturating_sub(limits.reserved))
    }
}

/// A position in the queue, left when dropped: the caller may go away.
struct SlotWaiter<'a> {
    slots: &'a ConcurrencySlots,
    wanted: SlotRequest,
    position: QueuePosition,
}

impl<'a> SlotWaiter<'a> {
    fn enqueue(slots: &'a ConcurrencySlots, wanted: SlotRequest) -> Self {
        let mut taken = slots.lock();
        let waiting = taken.queue.values();
        let waiting = waiting
            .filter(|other| other.group() == wanted.group())
            .count();
        let position = QueuePosition {
            before: taken.count_of(wanted.group()) + waiting,
            number: taken.next,
        };
        taken.next += 1;
        taken.queue.insert(position, wanted);
        Self {
            slots,
            wanted,
            position,
        }
    }

    /// The slot, where one is free and this waiter is next.
    fn take(&mut self) -> Option<ConcurrencySlot> {
        let mut taken = self.slots.lock();
        let limits = self.slots.limits;
        let mut waiting = taken.queue.iter();
        let next = waiting.find(|(_, wanted)| taken.fits(**wanted, limits));
        if next.map(|(position, _)| *position) != Some(self.position) {
            return None;
        }
        taken.queue.remove(&self.position);
        Some(self.slots.grant(&mut taken, self.wanted))
    }
}

impl Drop for SlotWaiter<'_> {
    fn drop(&mut self) {
        self.slots.lock().queue.remove(&self.position);
        self.slots.changed.notify_waiters();
    }
}

impl Drop for ConcurrencySlot {
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
        self.slots.changed.notify_waiters();
    }
}

/// The kill slots of the guard that are in use, by the person with the job. They are apart from the
/// slots of clients. Clones share the count.
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
        taken.retain_entries(|_, of_person| *of_person > 0);
    }
}

/// Handles that all operations of this program hold now.
static OPEN_HANDLES: AtomicU64 = AtomicU64::new(0);

/// Kills may use this fraction of the program's descriptors: one in two. Each process handle is a
/// descriptor, and without descriptors the daemon can neither poll nor serve: a user with many
/// processes must not take them all.
const KILL_DIVISOR: u64 = 2;

/// Permission for one handle, released when dropped.
#[derive(Debug)]
pub(super) struct FdPermit(());

impl FdPermit {
    /// A permit, if one is left.
    pub(super) fn take() -> Option<Self> {
        // Without a limit there is always a permit.
        let max_descriptors =
            getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / KILL_DIVISOR;
        let more = |held: u64| (held < max_descriptors).then_some(held + 1);
        let took = OPEN_HANDLES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Constructed only on success: dropping a permit releases it.
        took.is_ok().then(|| Self(()))
    }
}

/// Raises the soft limit of descriptors to the hard limit: the default soft limit is about a
/// thousand.
pub(crate) fn raise_fd_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

impl Drop for FdPermit {
    fn drop(&mut self) {
        OPEN_HANDLES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    const PLACES: ConcurrencyLimits = ConcurrencyLimits {
        total: 4,
        reserved: 1,
        per_group: 2,
    };

    const fn plain(uid: u32) -> LimitGroup {
        LimitGroup::Person(uid)
    }

    #[test]
    fn limits_one_person_and_keeps_reserved() {
        let slots = ConcurrencySlots::new(PLACES);
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
    fn privileged_slots_are_counted_apart() {
        let slots = ConcurrencySlots::new(ConcurrencyLimits {
            total: 4,
            reserved: 2,
            per_group: 2,
        });
        let fill = |group, is_privileged| {
            let taken = std::iter::from_fn(|| slots.take(group, is_privileged));
            taken.collect::<Vec<ConcurrencySlot>>()
        };
        // A plain caller that is counted as root takes no slot from root.
        let plain = fill(plain(0), false);
        let root = fill(LimitGroup::Person(0), true);
        let operator = fill(LimitGroup::Person(1000), true);
        let counts = [plain, root, operator].map(|taken| taken.len());
        assert_eq!(counts, [2, 2, 0]);
    }

    #[test]
    fn released_slot_is_free() {
        let slots = ConcurrencySlots::new(PLACES);
        drop(slots.take(plain(1000), false));
        drop(slots.take(plain(1001), true));
        let taken = slots.lock();
        assert_eq!((taken.all, taken.by_plain, taken.by_group.len()), (0, 0, 0));
    }
    const FEW: ConcurrencyLimits = ConcurrencyLimits {
        total: 4,
        reserved: 2,
        per_group: 1,
    };

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A caller that waits for a slot.
    type SlotFuture<'a> = futures::future::LocalBoxFuture<'a, Option<ConcurrencySlot>>;

    fn asks(slots: &ConcurrencySlots, uid: u32, is_privileged: bool) -> SlotFuture<'_> {
        slots.wait(plain(uid), is_privileged, HOUR).boxed_local()
    }

    /// The slot, where it is granted by now.
    fn poll_slot(asks: &mut SlotFuture<'_>) -> Option<ConcurrencySlot> {
        asks.now_or_never().flatten()
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap()
    }

    #[test]
    fn waiters_with_fewest_slots_come_first() {
        let (runtime, slots) = (runtime(), ConcurrencySlots::new(FEW));
        let _entered = runtime.enter();
        let ask = |uid| asks(&slots, uid, false);
        let mut alices = [1, 2, 3].map(|_| ask(1000));
        let [first, second, third] = &mut alices;
        let alices = poll_slot(first).unwrap();
        assert!(poll_slot(second).is_none());
        assert!(poll_slot(third).is_none());
        let bobs = poll_slot(&mut ask(1001)).unwrap();
        let (mut carol, mut dave) = (ask(1002), ask(1003));
        assert!(poll_slot(&mut carol).is_none());
        assert!(poll_slot(&mut dave).is_none());
        // The remaining slots are reserved.
        let root = poll_slot(&mut asks(&slots, 0, true)).unwrap();
        drop(alices);
        // All others are before her, in the order of their arrival.
        assert!(poll_slot(second).is_none());
        assert!(poll_slot(&mut dave).is_none());
        let carols = poll_slot(&mut carol).unwrap();
        drop(bobs);
        assert!(poll_slot(second).is_none());
        let daves = poll_slot(&mut dave).unwrap();
        drop((carols, daves, root));
        let alices = poll_slot(second).unwrap();
        // There is another slot, and no other waiter.
        assert!(poll_slot(third).is_none());
        let bobs = poll_slot(&mut ask(1001)).unwrap();
        drop(alices);
        assert!(poll_slot(third).is_some());
        drop(bobs);
    }

    #[test]
    fn leaving_or_timed_out_waiter_blocks_nobody() {
        let (runtime, slots) = (runtime(), ConcurrencySlots::new(FEW));
        let held = [1000, 1001].map(|uid| slots.take(plain(uid), false).unwrap());
        let wait = slots.wait(plain(1002), false, Duration::from_millis(1));
        assert!(runtime.block_on(wait).is_none());
        let entered = runtime.enter();
        let mut goes = asks(&slots, 1003, false);
        assert!(poll_slot(&mut goes).is_none());
        let mut stays = asks(&slots, 1004, false);
        assert!(poll_slot(&mut stays).is_none());
        drop(held);
        drop(entered);
        // Wakes up for both, in either order.
        let stays = runtime.block_on(async {
            let (stays, ()) = tokio::join!(stays, async { drop(goes) });
            stays
        });
        assert!(stays.is_some());
        assert!(slots.lock().queue.is_empty());
    }
}
