//! Operations under way, and the results of finished ones.

use super::concurrency::{
    ConcurrencyLimits, ConcurrencySlot, ConcurrencySlots, GuardSlot, GuardSlots,
};
use super::{KillOwner, first_id};
use gpukill_policy::access::LimitGroup;
use gpukill_policy::guard::PersonKey;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::kill::{KillPlan, KillReport, OperationId, Stage};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a finished operation is kept.
const FINISHED_RETENTION: Duration = Duration::from_secs(600);

/// How many finished operations are kept; the oldest goes first.
const MAX_FINISHED: usize = 256;

/// How many targets and outcomes finished operations may have, in all and of one person. With the
/// longest command line each takes about a kilobyte.
const MAX_FINISHED_PROCESSES: usize = 65_536;
const MAX_PROCESSES_PER_GROUP: usize = 16_384;

/// How many kills of clients may be under way. Each has a thread, and reads the whole process table
/// at times. The guard has slots of its own.
const CLIENT_LIMITS: ConcurrencyLimits = ConcurrencyLimits {
    total: 12,
    reserved: 4,
    per_group: 4,
};

/// A kill of more targets than this is large. While it is under way it holds several kilobytes for
/// each of them.
const MAX_SMALL_TARGETS: usize = 1_024;

/// How many of the kills of plain users may be large. Operators and root end what must be ended.
const LARGE_LIMITS: ConcurrencyLimits = ConcurrencyLimits {
    total: 2,
    reserved: 0,
    per_group: 1,
};

/// Operations by id. Finished ones are kept for ten minutes. Clones share them.
#[derive(Clone)]
pub(super) struct Operations {
    slots: ConcurrencySlots,
    large_slots: ConcurrencySlots,
    guard_slots: GuardSlots,
    shared: Arc<OperationsShared>,
}

struct OperationsShared {
    all: Mutex<OperationTable>,
    ended: Condvar,
}

struct OperationTable {
    next: u64,
    by_id: BTreeMap<OperationId, OperationEntry>,
}

struct OperationEntry {
    owner: KillOwner,
    group: LimitGroup,
    plan: Arc<KillPlan>,
    report: watch::Receiver<Arc<KillReport>>,
    ended: Option<Instant>,
}

pub(super) struct OperationHandle {
    pub(super) owner: KillOwner,
    pub(super) plan: Arc<KillPlan>,
    pub(super) report: watch::Receiver<Arc<KillReport>>,
}

impl Default for Operations {
    fn default() -> Self {
        let all = OperationTable {
            next: first_id(),
            by_id: BTreeMap::new(),
        };
        Self {
            slots: ConcurrencySlots::new(CLIENT_LIMITS),
            large_slots: ConcurrencySlots::new(LARGE_LIMITS),
            guard_slots: GuardSlots::default(),
            shared: Arc::new(OperationsShared {
                all: Mutex::new(all),
                ended: Condvar::new(),
            }),
        }
    }
}

impl Operations {
    /// A slot for one more operation of a client, which has this many targets, if one is free. A
    /// large operation of a plain user needs a second one.
    pub(super) fn take_slot(
        &self,
        group: LimitGroup,
        is_privileged: bool,
        targets: usize,
    ) -> Option<(ConcurrencySlot, Option<ConcurrencySlot>)> {
        let slot = self.slots.take(group, is_privileged)?;
        if is_privileged || targets <= MAX_SMALL_TARGETS {
            return Some((slot, None));
        }
        let large = self.large_slots.take(group, false)?;
        Some((slot, Some(large)))
    }

    /// A slot for one more kill by the guard against this person, if one is free.
    pub(super) fn take_guard_slot(&self, person: &PersonKey) -> Option<GuardSlot> {
        self.guard_slots.take(person)
    }

    /// Starts an operation on a thread of its own, which calls `operation`, for its owner, counted in
    /// its limit group. The slot is released when the thread ends.
    pub(super) fn start(
        &self,
        slot: impl Send + 'static,
        (owner, group): (KillOwner, LimitGroup),
        plan: &Arc<KillPlan>,
        operation: impl FnOnce(&watch::Sender<Arc<KillReport>>) + Send + 'static,
    ) -> std::io::Result<OperationId> {
        let (report, followed) = watch::channel(Arc::new(KillReport {
            version: 0,
            stage: Stage::Ending,
            outcomes: Vec::new(),
            memory: Vec::new(),
            respawned: Vec::new(),
            unchecked: None,
            unrecorded: None,
        }));
        let id = {
            let mut all = self.lock();
            all.remove_expired(Instant::now());
            let id = OperationId(all.next);
            all.next += 1;
            let entry = OperationEntry {
                owner,
                group,
                plan: Arc::clone(plan),
                report: followed,
                ended: None,
            };
            all.by_id.insert(id, entry);
            id
        };
        let operations = self.clone();
        let spawned = std::thread::Builder::new()
            .name(format!("act-{}", id.0 % 10_000))
            .spawn(move || {
                run(id, &report, operation);
                drop(slot);
                operations.mark_ended(id);
            });
        match spawned {
            Ok(_) => Ok(id),
            Err(error) => {
                self.lock().by_id.remove(&id);
                Err(error)
            }
        }
    }

    /// An operation by id, for any owner.
    pub(super) fn get(&self, id: OperationId) -> Option<OperationHandle> {
        let mut all = self.lock();
        all.remove_expired(Instant::now());
        let entry = all.by_id.get(&id)?;
        Some(OperationHandle {
            owner: entry.owner,
            plan: Arc::clone(&entry.plan),
            report: entry.report.clone(),
        })
    }

    /// Waits until no operation is under way, at most until the deadline. Returns how many still
    /// are.
    pub(super) fn wait_until_idle(&self, deadline: Instant) -> usize {
        let mut all = self.lock();
        loop {
            let under_way = all.by_id.values().filter(|entry| entry.ended.is_none());
            let under_way = under_way.count();
            let left = deadline.saturating_duration_since(Instant::now());
            if under_way == 0 || left.is_zero() {
                return under_way;
            }
            let waited = self.shared.ended.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn mark_ended(&self, id: OperationId) {
        let now = Instant::now();
        let mut all = self.lock();
        if let Some(entry) = all.by_id.get_mut(&id) {
            entry.ended = Some(now);
        }
        all.remove_expired(now);
        all.remove_excess();
        drop(all);
        self.shared.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, OperationTable> {
        // No code panics while it holds this lock; if some did, the operations in it would still be
        // whole.
        let all = self.shared.all.lock();
        all.unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperationEntry {
    /// The number of its targets and outcomes.
    fn size(&self) -> usize {
        self.plan.targets.len() + self.report.borrow().outcomes.len()
    }
}

impl OperationTable {
    fn remove_expired(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= FINISHED_RETENTION;
        self.by_id
            .retain_entries(|_, entry| !entry.ended.is_some_and(is_old));
    }

    /// Removes the oldest finished operations where there are too many, or where their plans and
    /// reports are too large. The newest one of a limit group stays even if it is larger than the
    /// share of the group, because its caller has still to read the report. It counts as that share:
    /// it displaces no operation of another group.
    fn remove_excess(&mut self) {
        let mut ended: Vec<(Instant, OperationId)> = self
            .by_id
            .iter()
            .filter_map(|(id, entry)| Some((entry.ended?, *id)))
            .collect();
        ended.sort_indirect();
        let mut kept: Vec<(LimitGroup, usize)> = Vec::new();
        for (newer, (_, id)) in ended.into_iter().rev().enumerate() {
            let Some(entry) = self.by_id.get(&id) else {
                continue;
            };
            let mut size = entry.size();
            let (mut of_group, mut of_all) = (0, 0);
            let mut is_newest = true;
            for (group, size) in &kept {
                of_all += size;
                if *group == entry.group {
                    of_group += size;
                    is_newest = false;
                }
            }
            if is_newest {
                size = size.min(MAX_PROCESSES_PER_GROUP);
            }
            let fits = of_group + size <= MAX_PROCESSES_PER_GROUP
                && of_all + size <= MAX_FINISHED_PROCESSES;
            if fits && newer < MAX_FINISHED {
                kept.push((entry.group, size));
            } else {
                self.by_id.remove(&id);
            }
        }
    }
}

/// Runs the action, and reports an interruption to the followers where it panicked.
fn run(
    id: OperationId,
    report: &watch::Sender<Arc<KillReport>>,
    operation: impl FnOnce(&watch::Sender<Arc<KillReport>>),
) {
    let done = catch_unwind(AssertUnwindSafe(|| operation(report)));
    if done.is_err() {
        tracing::error!(operation = id.0, "an operation panicked");
    }
    let is_over = match report.borrow().stage {
        Stage::Done | Stage::Interrupted => true,
        Stage::Ending | Stage::Reclaiming => false,
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
    use super::super::plans::tests::plan_with_targets;
    use super::*;
    use crate::store::{Action, ActionKind, OpenAction, Store};

    use gpukill_proto::units::Timestamp;
    use std::sync::mpsc::channel;

    fn owner(uid: u32) -> KillOwner {
        KillOwner {
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
        operation: impl FnOnce(&watch::Sender<Arc<KillReport>>) + Send + 'static,
    ) -> Option<OperationId> {
        begin_plan(operations, uid, plan(), operation)
    }

    fn begin_plan(
        operations: &Operations,
        uid: u32,
        plan: Arc<KillPlan>,
        operation: impl FnOnce(&watch::Sender<Arc<KillReport>>) + Send + 'static,
    ) -> Option<OperationId> {
        let group = LimitGroup::Person(uid);
        let slot = operations.take_slot(group, false, plan.targets.len())?;
        let started = operations.start(slot, (owner(uid), group), &plan, operation);
        Some(started.unwrap())
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
        assert_eq!(operations.wait_until_idle(soon), 0);
    }

    fn report(operations: &Operations, id: OperationId) -> (u64, Stage) {
        let report = operations.get(id).unwrap().report;
        let report = report.borrow();
        (report.version, report.stage)
    }

    #[test]
    fn can_be_followed_while_and_after_it_runs() {
        let operations = Operations::default();
        let (release, released) = channel::<()>();
        let id = begin(&operations, 1000, move |report| {
            let _ = released.recv();
            end(report, Stage::Done);
        });
        let id = id.unwrap();
        assert_eq!(report(&operations, id), (0, Stage::Ending));
        assert_eq!(operations.wait_until_idle(Instant::now()), 1);
        drop(release);
        settle(&operations);
        assert_eq!(report(&operations, id), (1, Stage::Done));
        let followed = operations.get(id).unwrap();
        assert_eq!((followed.owner, followed.plan), (owner(1000), plan()));
        assert!(operations.get(OperationId(id.0 + 1)).is_none());
    }

    #[test]
    fn panic_or_early_return_is_interrupted() {
        let operations = Operations::default();
        let panics = begin(&operations, 1000, |_| panic!("on purpose")).unwrap();
        let returns = begin(&operations, 1000, |report| end(report, Stage::Reclaiming)).unwrap();
        let stopped = begin(&operations, 1000, |report| end(report, Stage::Interrupted)).unwrap();
        settle(&operations);
        assert_eq!(report(&operations, panics), (1, Stage::Interrupted));
        assert_eq!(report(&operations, returns), (2, Stage::Interrupted));
        assert_eq!(report(&operations, stopped), (1, Stage::Interrupted));
        // The slot was released.
        let slots: Vec<_> = (0..4)
            .map(|_| operations.take_slot(LimitGroup::Person(1000), false, 1))
            .collect();
        assert!(slots.iter().all(Option::is_some));
    }

    #[test]
    fn panic_is_recorded_before_it_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::start(
            directory.path().into(),
            "boot".into(),
            crate::store::Retention::HOUR,
            None,
        )
        .unwrap();
        let operations = Operations::default();
        let (recorded, panics) = (store.clone(), |_: &OpenAction| panic!("on purpose"));
        let id = begin(&operations, 1000, move |_| {
            let open = recorded.record_intent(Action {
                kind: ActionKind::Kill,
                uid: 1000,
                request: "7".into(),
                plan: "{}".into(),
            });
            panics(&open.ok().unwrap());
        });
        settle(&operations);
        let last = report(&operations, id.unwrap());
        assert_eq!(last, (1, Stage::Interrupted));
        // Waits for the writer thread.
        store.close();
        let database = rusqlite::Connection::open(directory.path().join("audit.db")).unwrap();
        let select = "SELECT result, outcome, reason FROM action";
        type ActionRow = (String, Option<String>, String);
        let row: ActionRow = database
            .query_row(select, [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap();
        let why = "a fault of gpukilld aborted it: see the log";
        assert_eq!(row, ("failed".into(), None, why.into()));
    }

    #[test]
    fn one_person_runs_four_at_most() {
        let operations = Operations::default();
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let mut started = 0;
        loop {
            let released = Arc::clone(&released);
            let wait = move |report: &watch::Sender<Arc<KillReport>>| {
                let _ = released.lock().unwrap().recv();
                end(report, Stage::Done);
            };
            if begin(&operations, 1000, wait).is_none() {
                break;
            }
            started += 1;
        }
        assert_eq!(started, 4);
        drop(release);
        settle(&operations);
        // The slot is released a moment before the operation is marked as ended.
        assert!(begin(&operations, 1000, |report| end(report, Stage::Done)).is_some());
        settle(&operations);
    }

    #[test]
    fn clients_leave_slots_to_root_and_guard() {
        let operations = Operations::default();
        let take = |group, is_privileged| {
            let taken = std::iter::from_fn(|| operations.take_slot(group, is_privileged, 1));
            taken.collect::<Vec<_>>()
        };
        let plain: Vec<_> = (0..8)
            .map(|uid| take(LimitGroup::Person(uid), false))
            .collect();
        let root = take(LimitGroup::Person(0), true);
        let guards = |operations: &Operations| -> Vec<usize> {
            let of = |uid| {
                let person = PersonKey::User(uid);
                let taken = std::iter::from_fn(|| operations.take_guard_slot(&person));
                taken.collect::<Vec<_>>()
            };
            let taken: Vec<_> = [1000, 1001, 0, 1002].map(of).into();
            taken.iter().map(Vec::len).collect()
        };
        let guard = guards(&operations);
        let plain: usize = plain.iter().map(Vec::len).sum();
        assert_eq!((plain, root.len()), (8, 4));
        // The guard has as many slots as without any clients, and several persons get one.
        assert_eq!(guard, guards(&Operations::default()));
        assert_eq!(guard, [4, 2, 1, 1]);
    }

    #[test]
    fn guard_leaves_all_client_slots_free() {
        let operations = Operations::default();
        let guards = (0..100).filter_map(|uid| operations.take_guard_slot(&PersonKey::User(uid)));
        let guards: Vec<_> = guards.collect();
        assert_eq!(guards.len(), 12);
        let clients = (0..12).map(|uid| operations.take_slot(LimitGroup::Person(uid), uid >= 8, 1));
        let clients: Vec<_> = clients.collect();
        assert!(clients.iter().all(Option::is_some));
        drop(guards);
        assert!(operations.take_guard_slot(&PersonKey::User(0)).is_some());
    }

    #[test]
    fn keeps_finished_for_ten_minutes() {
        let operations = Operations::default();
        let ids: Vec<OperationId> = (0..258)
            .map(|_| {
                let id = begin(&operations, 1000, |report| end(report, Stage::Done)).unwrap();
                settle(&operations);
                id
            })
            .collect();
        let is_kept = |id: &OperationId| operations.get(*id).is_some();
        let kept: Vec<bool> = ids.iter().map(is_kept).collect();
        assert_eq!(kept[..3], [false, false, true]);
        assert!(kept[2..].iter().all(|kept| *kept));
        let last = ids[257];
        let ended = operations.lock().by_id[&last].ended.unwrap();
        let mut all = operations.lock();
        all.remove_expired(ended + FINISHED_RETENTION - Duration::from_millis(1));
        assert!(all.by_id.contains_key(&last));
        all.remove_expired(ended + FINISHED_RETENTION);
        assert_eq!(all.by_id.len(), 0);
    }

    #[test]
    fn large_results_of_one_person_go_first() {
        let operations = Operations::default();
        let end_plan = |uid, targets| {
            let done = |report: &watch::Sender<Arc<KillReport>>| end(report, Stage::Done);
            let id = begin_plan(&operations, uid, plan_with_targets(targets), done).unwrap();
            settle(&operations);
            id
        };
        let is_kept = |id: OperationId| operations.get(id).is_some();
        let bobs = end_plan(1001, 1);
        let alices = [7_000, 7_000, 7_000].map(|targets| end_plan(1000, targets));
        assert_eq!(alices.map(is_kept), [false, true, true]);
        // The newest one stays, however large it is: older ones of the same user go.
        let largest = end_plan(1000, 100_000);
        assert_eq!(alices.map(is_kept), [false, false, false]);
        assert!(is_kept(largest) && is_kept(bobs));
        // Of all persons, the oldest goes first.
        let others: Vec<OperationId> = (2_000..2_004).map(|uid| end_plan(uid, 16_384)).collect();
        assert!(!is_kept(largest) && !is_kept(bobs));
        assert!(others.into_iter().all(is_kept));
    }

    #[test]
    fn one_person_runs_one_large_kill() {
        let operations = Operations::default();
        let take = |uid, is_privileged, targets| {
            operations.take_slot(LimitGroup::Person(uid), is_privileged, targets)
        };
        let alices = take(1000, false, 1_025).unwrap();
        assert!(take(1000, false, 1_025).is_none());
        let small = take(1000, false, 1_024);
        assert!(small.is_some());
        let bobs = take(1001, false, 1_025);
        assert!(bobs.is_some());
        assert!(take(1002, false, 1_025).is_none());
        let root = take(0, true, 1_025);
        assert!(root.is_some());
        drop(alices);
        assert!(take(1002, false, 1_025).is_some());
    }
}
