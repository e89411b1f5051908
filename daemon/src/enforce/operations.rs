//! What is under way, and what has become of what was.

use super::guard_places::{GuardPlace, GuardPlaces};
use super::slots::{Places, Slot, Slots};
use super::{Owner, ids};
use gpukill_policy::access::LimitGroup;
use gpukill_policy::guard::PersonKey;
use gpukill_proto::kill::{KillPlan, KillReport, OperationId, Stage};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// One that has ended is kept for so long.
const KEEP: Duration = Duration::from_secs(600);

/// So many that have ended are kept; then the oldest makes room.
const MOST_ENDED: usize = 256;

/// So many that clients asked for may be under way. Each has a thread, and sees everybody
/// now and then. The guard has places of its own.
const PLACES: Places = Places {
    most: 12,
    reserved: 4,
    of_one: 4,
};

/// Operations by their ids. Those that have ended are kept for ten minutes. Clones
/// share them.
#[derive(Clone)]
pub(super) struct Operations {
    slots: Slots,
    guard_places: GuardPlaces,
    shared: Arc<Shared>,
}

struct Shared {
    all: Mutex<All>,
    ended: Condvar,
}

struct All {
    next: u64,
    by_id: BTreeMap<OperationId, One>,
}

struct One {
    owner: Owner,
    plan: Arc<KillPlan>,
    report: watch::Receiver<Arc<KillReport>>,
    ended: Option<Instant>,
}

/// An operation, as it is followed.
pub(super) struct Followed {
    pub(super) owner: Owner,
    pub(super) plan: Arc<KillPlan>,
    pub(super) report: watch::Receiver<Arc<KillReport>>,
}

impl Default for Operations {
    fn default() -> Self {
        let all = All {
            next: ids::first(),
            by_id: BTreeMap::new(),
        };
        Self {
            slots: Slots::new(PLACES),
            guard_places: GuardPlaces::default(),
            shared: Arc::new(Shared {
                all: Mutex::new(all),
                ended: Condvar::new(),
            }),
        }
    }
}

impl Operations {
    /// A place for one more that a client asks for, if there is one.
    pub(super) fn place(&self, group: LimitGroup, is_privileged: bool) -> Option<Slot> {
        self.slots.take(group, is_privileged)
    }

    /// A place for one more of the guard's, against this person, if there is one.
    pub(super) fn guard_place(&self, person: &PersonKey) -> Option<GuardPlace> {
        self.guard_places.take(person)
    }

    /// Begins one, on a thread of its own, which calls `act`. The place is given back when
    /// that ends.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn begin(
        &self,
        place: impl Send + 'static,
        owner: Owner,
        plan: &Arc<KillPlan>,
        act: impl FnOnce(&watch::Sender<Arc<KillReport>>) + Send + 'static,
    ) -> std::io::Result<OperationId> {
        let (report, followed) = watch::channel(Arc::new(KillReport {
            version: 0,
            stage: Stage::Ending,
            outcomes: Vec::new(),
            memory: Vec::new(),
            respawned: Vec::new(),
            unrecorded: None,
        }));
        let id = {
            let mut all = self.lock();
            all.forget_the_old(Instant::now());
            let id = OperationId(all.next);
            all.next += 1;
            let one = One {
                owner,
                plan: Arc::clone(plan),
                report: followed,
                ended: None,
            };
            all.by_id.insert(id, one);
            id
        };
        let operations = self.clone();
        let began = std::thread::Builder::new()
            .name(format!("act-{}", id.0 % 10_000))
            .spawn(move || {
                run(id, &report, act);
                drop(place);
                operations.end(id);
            });
        match began {
            Ok(_) => Ok(id),
            Err(error) => {
                self.lock().by_id.remove(&id);
                Err(error)
            }
        }
    }

    /// One of these, whoever began it.
    pub(super) fn of(&self, id: OperationId) -> Option<Followed> {
        let mut all = self.lock();
        all.forget_the_old(Instant::now());
        let one = all.by_id.get(&id)?;
        Some(Followed {
            owner: one.owner,
            plan: Arc::clone(&one.plan),
            report: one.report.clone(),
        })
    }

    /// Waits until none is under way, but not past the deadline; how many are.
    pub(super) fn settle(&self, deadline: Instant) -> usize {
        let mut all = self.lock();
        loop {
            let under_way = all.by_id.values().filter(|one| one.ended.is_none());
            let under_way = under_way.count();
            let left = deadline.saturating_duration_since(Instant::now());
            if under_way == 0 || left.is_zero() {
                return under_way;
            }
            let waited = self.shared.ended.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn end(&self, id: OperationId) {
        let now = Instant::now();
        let mut all = self.lock();
        if let Some(one) = all.by_id.get_mut(&id) {
            one.ended = Some(now);
        }
        all.forget_the_old(now);
        drop(all);
        self.shared.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // Nothing panics while it holds this lock; if something did, the
        // operations in it are whole all the same.
        let all = self.shared.all.lock();
        all.unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn forget_the_old(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= KEEP;
        self.by_id.retain(|_, one| !one.ended.is_some_and(is_old));
        let mut ended: Vec<(Instant, OperationId)> = self
            .by_id
            .iter()
            .filter_map(|(id, one)| Some((one.ended?, *id)))
            .collect();
        ended.sort_unstable();
        let too_many = ended.len().saturating_sub(MOST_ENDED);
        for (_, id) in ended.into_iter().take(too_many) {
            self.by_id.remove(&id);
        }
    }
}

/// Does it, and tells whoever follows when it broke off.
fn run(
    id: OperationId,
    report: &watch::Sender<Arc<KillReport>>,
    act: impl FnOnce(&watch::Sender<Arc<KillReport>>),
) {
    let done = catch_unwind(AssertUnwindSafe(|| act(report)));
    if done.is_err() {
        tracing::error!(operation = id.0, "an act panicked");
    }
    let is_over = match report.borrow().stage {
        Stage::Done | Stage::Interrupted => true,
        Stage::Ending | Stage::Releasing => false,
    };
    if !is_over {
        report.send_modify(|report| {
            let report = Arc::make_mut(report);
            report.version += 1;
            report.stage = Stage::Interrupted;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Act, ActKind, OpenAct, Store};

    use gpukill_proto::units::Timestamp;
    use std::sync::mpsc::channel;

    fn owner(uid: u32) -> Owner {
        Owner {
            uid,
            contained_root: false,
        }
    }

    fn plan() -> Arc<KillPlan> {
        Arc::new(KillPlan {
            at: Timestamp(7),
            ..KillPlan::default()
        })
    }

    fn begin(
        operations: &Operations,
        uid: u32,
        act: impl FnOnce(&watch::Sender<Arc<KillReport>>) + Send + 'static,
    ) -> Option<OperationId> {
        let slot = operations.place(LimitGroup::Person(uid), false)?;
        Some(operations.begin(slot, owner(uid), &plan(), act).unwrap())
    }

    fn end(report: &watch::Sender<Arc<KillReport>>, stage: Stage) {
        report.send_modify(|report| {
            let report = Arc::make_mut(report);
            report.version += 1;
            report.stage = stage;
        });
    }

    fn settle(operations: &Operations) {
        let soon = Instant::now() + Duration::from_secs(20);
        assert_eq!(operations.settle(soon), 0);
    }

    fn report(operations: &Operations, id: OperationId) -> (u64, Stage) {
        let report = operations.of(id).unwrap().report;
        let report = report.borrow();
        (report.version, report.stage)
    }

    #[test]
    fn an_operation_is_followed_while_it_goes_on_and_after_it() {
        let operations = Operations::default();
        let (go_on, told) = channel::<()>();
        let id = begin(&operations, 1000, move |report| {
            let _ = told.recv();
            end(report, Stage::Done);
        });
        let id = id.unwrap();
        assert_eq!(report(&operations, id), (0, Stage::Ending));
        assert_eq!(operations.settle(Instant::now()), 1);
        drop(go_on);
        settle(&operations);
        assert_eq!(report(&operations, id), (1, Stage::Done));
        let followed = operations.of(id).unwrap();
        assert_eq!((followed.owner, followed.plan), (owner(1000), plan()));
        assert!(operations.of(OperationId(id.0 + 1)).is_none());
    }

    #[test]
    fn one_that_panics_or_returns_early_was_interrupted() {
        let operations = Operations::default();
        let panics = begin(&operations, 1000, |_| panic!("on purpose")).unwrap();
        let returns = begin(&operations, 1000, |report| end(report, Stage::Releasing)).unwrap();
        let stopped = begin(&operations, 1000, |report| end(report, Stage::Interrupted)).unwrap();
        settle(&operations);
        assert_eq!(report(&operations, panics), (1, Stage::Interrupted));
        assert_eq!(report(&operations, returns), (2, Stage::Interrupted));
        assert_eq!(report(&operations, stopped), (1, Stage::Interrupted));
        // It gave its place back.
        let slots: Vec<_> = (0..4)
            .map(|_| operations.place(LimitGroup::Person(1000), false))
            .collect();
        assert!(slots.iter().all(Option::is_some));
    }

    #[test]
    fn one_that_panics_is_recorded_as_failed_before_whoever_follows_it_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::start(
            directory.path().into(),
            "boot".into(),
            crate::audit::Keep::HOUR,
            None,
        )
        .unwrap();
        let operations = Operations::default();
        let (recorded, panics) = (store.clone(), |_: &OpenAct| panic!("on purpose"));
        let id = begin(&operations, 1000, move |_| {
            let open = recorded.intend(Act {
                kind: ActKind::Kill,
                uid: 1000,
                asked: "7".into(),
                plan: "{}".into(),
            });
            panics(&open.ok().unwrap());
        });
        settle(&operations);
        let told = report(&operations, id.unwrap());
        assert_eq!(told, (1, Stage::Interrupted));
        // It waits for the writing thread.
        store.close();
        let database = rusqlite::Connection::open(directory.path().join("audit.db")).unwrap();
        let select = "SELECT word, outcome, why FROM action";
        type Row = (String, Option<String>, String);
        let row: Row = database
            .query_row(select, [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap();
        let why = "a fault of gpukilld broke it off: the log has it";
        assert_eq!(row, ("failed".into(), None, why.into()));
    }

    #[test]
    fn four_of_one_person_are_under_way_and_no_more() {
        let operations = Operations::default();
        let (go_on, told) = channel::<()>();
        let told = Arc::new(Mutex::new(told));
        let mut begun = 0;
        loop {
            let told = Arc::clone(&told);
            let wait = move |report: &watch::Sender<Arc<KillReport>>| {
                let _ = told.lock().unwrap().recv();
                end(report, Stage::Done);
            };
            if begin(&operations, 1000, wait).is_none() {
                break;
            }
            begun += 1;
        }
        assert_eq!(begun, 4);
        drop(go_on);
        settle(&operations);
        // The place is free a moment before its operation has ended.
        assert!(begin(&operations, 1000, |report| end(report, Stage::Done)).is_some());
        settle(&operations);
    }

    #[test]
    fn clients_leave_places_to_root_and_all_of_the_guards_to_it() {
        let operations = Operations::default();
        let take = |group, is_privileged| {
            let places = std::iter::from_fn(|| operations.place(group, is_privileged));
            places.collect::<Vec<_>>()
        };
        let plain: Vec<_> = (0..8)
            .map(|uid| take(LimitGroup::Person(uid), false))
            .collect();
        let root = take(LimitGroup::Person(0), true);
        let guards = |operations: &Operations| -> Vec<usize> {
            let of = |uid| {
                let person = PersonKey::User(uid);
                let places = std::iter::from_fn(|| operations.guard_place(&person));
                places.collect::<Vec<_>>()
            };
            let places: Vec<_> = [1000, 1001, 0, 1002].map(of).into();
            places.iter().map(Vec::len).collect()
        };
        let guard = guards(&operations);
        let plain: usize = plain.iter().map(Vec::len).sum();
        assert_eq!((plain, root.len()), (8, 4));
        // It has as many as where no client asks for anything, and several people get some.
        assert_eq!(guard, guards(&Operations::default()));
        assert_eq!(guard, [4, 2, 1, 1]);
    }

    #[test]
    fn the_guard_leaves_all_of_their_places_to_clients() {
        let operations = Operations::default();
        let guards = (0..100).filter_map(|uid| operations.guard_place(&PersonKey::User(uid)));
        let guards: Vec<_> = guards.collect();
        assert_eq!(guards.len(), 12);
        let clients = (0..12).map(|uid| operations.place(LimitGroup::Person(uid), uid >= 8));
        let clients: Vec<_> = clients.collect();
        assert!(clients.iter().all(Option::is_some));
        drop(guards);
        assert!(operations.guard_place(&PersonKey::User(0)).is_some());
    }

    #[test]
    fn those_that_have_ended_are_kept_for_ten_minutes_and_256_at_most() {
        let operations = Operations::default();
        let ids: Vec<OperationId> = (0..258)
            .map(|_| {
                let id = begin(&operations, 1000, |report| end(report, Stage::Done)).unwrap();
                settle(&operations);
                id
            })
            .collect();
        let is_kept = |id: &OperationId| operations.of(*id).is_some();
        let kept: Vec<bool> = ids.iter().map(is_kept).collect();
        assert_eq!(kept[..3], [false, false, true]);
        assert!(kept[2..].iter().all(|kept| *kept));
        let last = ids[257];
        let ended = operations.lock().by_id[&last].ended.unwrap();
        let mut all = operations.lock();
        all.forget_the_old(ended + KEEP - Duration::from_millis(1));
        assert!(all.by_id.contains_key(&last));
        all.forget_the_old(ended + KEEP);
        assert_eq!(all.by_id.len(), 0);
    }
}
