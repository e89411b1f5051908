//! The plans that wait for execution, the running reset, and the reports of earlier ones.

use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a plan, and an operation that has ended, is kept.
const RETENTION: Duration = Duration::from_secs(600);

/// At most this many of each are kept, because only operators make them; the oldest is dropped
/// first.
const MAX_RETAINED: usize = 32;

/// Clones share the content.
#[derive(Clone)]
pub(super) struct ResetOperations(Arc<ResetOperationsShared>);

struct ResetOperationsShared {
    table: Mutex<ResetTable>,
    ended: Condvar,
}

struct ResetTable {
    next: u64,
    /// No further reset may start.
    is_stopping: bool,
    plans: BTreeMap<PlanId, (u32, Arc<ResetPlan>, Instant)>,
    operations: BTreeMap<OperationId, ResetEntry>,
}

struct ResetEntry {
    report: watch::Receiver<Arc<ResetReport>>,
    ended: Option<Instant>,
}

/// The plan and the report channel, for the thread that executes the plan.
pub(super) struct StartedReset {
    pub(super) plan: Arc<ResetPlan>,
    pub(super) sender: watch::Sender<Arc<ResetReport>>,
}

impl Default for ResetOperations {
    fn default() -> Self {
        let all = ResetTable {
            // Random, so that an id that a client got from an earlier daemon means nothing to this
            // one; far below the maximum.
            next: (RandomState::new().hash_one(0) >> 16) + 1,
            is_stopping: false,
            plans: BTreeMap::new(),
            operations: BTreeMap::new(),
        };
        Self(Arc::new(ResetOperationsShared {
            table: Mutex::new(all),
            ended: Condvar::new(),
        }))
    }
}

impl ResetOperations {
    pub(super) fn add_plan(&self, uid: u32, plan: Arc<ResetPlan>, now: Instant) -> PlanId {
        let mut all = self.lock(now);
        let id = PlanId(all.next_id());
        all.plans.insert(id, (uid, plan, now));
        while all.plans.len() > MAX_RETAINED {
            all.plans.pop_first();
        }
        id
    }

    /// Takes a plan of this user for execution. One reset runs at a time: two would search for each
    /// other's GPUs while these are gone.
    ///
    /// # Errors
    /// [`Refusal::Expired`], [`Refusal::Busy`] while another reset runs, and
    /// [`Refusal::Unavailable`] after [`Self::stop`].
    pub(super) fn start(
        &self,
        uid: u32,
        id: PlanId,
        now: Instant,
    ) -> Result<(OperationId, StartedReset), Refusal> {
        let mut all = self.lock(now);
        let is_own_plan = all.plans.get(&id).is_some_and(|(of, ..)| *of == uid);
        if !is_own_plan {
            return Err(Refusal::Expired);
        }
        if all.is_stopping {
            return Err(Refusal::Unavailable("gpukilld is stopping".to_owned()));
        }
        if all.is_reset_running() {
            return Err(Refusal::Busy);
        }
        let (_, plan, _) = all.plans.remove(&id).ok_or(Refusal::Expired)?;
        let (sender, report) = watch::channel(Arc::new(ResetReport {
            version: 0,
            stage: Stage::Ending,
            outcomes: Vec::new(),
            unrecorded: None,
        }));
        let operation = OperationId(all.next_id());
        let entry = ResetEntry {
            report,
            ended: None,
        };
        all.operations.insert(operation, entry);
        Ok((operation, StartedReset { plan, sender }))
    }

    /// Marks an operation as ended.
    pub(super) fn finish(&self, id: OperationId, now: Instant) {
        if let Some(entry) = self.lock(now).operations.get_mut(&id) {
            entry.ended = Some(now);
        }
        self.0.ended.notify_all();
    }

    /// Prevents further resets, and waits until none runs, but not past the deadline; returns
    /// whether that was in time.
    pub(super) fn stop(&self, deadline: Instant) -> bool {
        let mut all = self.lock(Instant::now());
        all.is_stopping = true;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !all.is_reset_running() || left.is_zero() {
                return !all.is_reset_running();
            }
            let waited = self.0.ended.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether [`Self::stop`] was called.
    pub(super) fn is_stopping(&self) -> bool {
        self.lock(Instant::now()).is_stopping
    }

    /// Removes an operation that was not started after all.
    pub(super) fn remove(&self, id: OperationId) {
        self.lock(Instant::now()).operations.remove(&id);
    }

    pub(super) fn report(
        &self,
        id: OperationId,
        now: Instant,
    ) -> Option<watch::Receiver<Arc<ResetReport>>> {
        let all = self.lock(now);
        all.operations.get(&id).map(|entry| entry.report.clone())
    }

    fn lock(&self, now: Instant) -> MutexGuard<'_, ResetTable> {
        // Nothing panics while it holds this lock; if something did, the content would still be
        // consistent.
        let mut all = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: Instant| now.saturating_duration_since(at) >= RETENTION;
        all.plans.retain_entries(|_, (_, _, since)| !is_old(*since));
        all.operations
            .retain_entries(|_, entry| !entry.ended.is_some_and(is_old));
        while all.operations.len() > MAX_RETAINED {
            // The running operation is the newest.
            all.operations.pop_first();
        }
        all
    }
}

impl ResetTable {
    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_reset_running(&self) -> bool {
        self.operations.values().any(|entry| entry.ended.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::reset::ResetRequest;
    use gpukill_proto::units::Timestamp;

    fn plan() -> Arc<ResetPlan> {
        Arc::new(ResetPlan {
            at: Timestamp(7),
            request: ResetRequest {
                gpu: None,
                force: false,
                signal_timeout_ms: 1,
                dry_run: false,
            },
            devices: Vec::new(),
        })
    }

    fn refusal(started: Result<(OperationId, StartedReset), Refusal>) -> Option<Refusal> {
        started.err()
    }

    #[test]
    fn plan_runs_once_and_only_for_its_owner() {
        let (kept, now) = (ResetOperations::default(), Instant::now());
        let id = kept.add_plan(7, plan(), now);
        assert_eq!(refusal(kept.start(8, id, now)), Some(Refusal::Expired));
        let (operation, started) = kept.start(7, id, now).unwrap();
        assert_eq!(started.plan, plan());
        assert_eq!(refusal(kept.start(7, id, now)), Some(Refusal::Expired));
        kept.finish(operation, now);
        assert!(kept.report(operation, now).is_some());
        assert!(kept.report(operation, now + RETENTION).is_none());
    }

    #[test]
    fn plan_expires_after_ten_minutes() {
        let (kept, now) = (ResetOperations::default(), Instant::now());
        let id = kept.add_plan(7, plan(), now);
        assert_eq!(
            refusal(kept.start(7, id, now + RETENTION)),
            Some(Refusal::Expired)
        );
    }

    #[test]
    fn second_reset_waits_for_the_first() {
        let (kept, now) = (ResetOperations::default(), Instant::now());
        let (first, second) = (kept.add_plan(7, plan(), now), kept.add_plan(8, plan(), now));
        let (operation, _begun) = kept.start(7, first, now).unwrap();
        assert_eq!(refusal(kept.start(8, second, now)), Some(Refusal::Busy));
        kept.finish(operation, now);
        assert!(kept.start(8, second, now).is_ok());
    }

    #[test]
    fn stop_waits_and_prevents_further_resets() {
        let (kept, now) = (ResetOperations::default(), Instant::now());
        assert!(kept.stop(now));
        let kept = ResetOperations::default();
        let (first, second) = (kept.add_plan(7, plan(), now), kept.add_plan(7, plan(), now));
        let (operation, _begun) = kept.start(7, first, now).unwrap();
        assert!(!kept.is_stopping());
        // A reset that does not end in time is no longer waited for.
        assert!(!kept.stop(now + Duration::from_millis(10)));
        assert!(kept.is_stopping());
        let operations = kept.clone();
        let ends = std::thread::spawn(move || operations.finish(operation, Instant::now()));
        assert!(kept.stop(now + RETENTION));
        ends.join().unwrap();
        let stops = Refusal::Unavailable("gpukilld is stopping".to_owned());
        assert_eq!(refusal(kept.start(7, second, now)), Some(stops));
    }

    #[test]
    fn oldest_plan_is_dropped() {
        let (kept, now) = (ResetOperations::default(), Instant::now());
        let ids: Vec<PlanId> = (0..=MAX_RETAINED)
            .map(|_| kept.add_plan(7, plan(), now))
            .collect();
        assert_eq!(refusal(kept.start(7, ids[0], now)), Some(Refusal::Expired));
        assert!(kept.start(7, ids[1], now).is_ok());
    }
}
