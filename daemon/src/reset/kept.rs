//! Plans of resets that wait to be carried out, the one that is under way, and
//! what became of those before.

use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A plan is kept for so long, and so long an operation that has ended.
const KEEP: Duration = Duration::from_secs(600);

/// So many of each are kept: operators alone make them. Then the oldest makes room.
const MOST: usize = 32;

/// Clones share it.
#[derive(Clone)]
pub(super) struct Kept(Arc<Shared>);

struct Shared {
    all: Mutex<All>,
    ended: Condvar,
}

struct All {
    next: u64,
    /// Nothing is begun any more.
    is_stopping: bool,
    plans: BTreeMap<PlanId, (u32, Arc<ResetPlan>, Instant)>,
    operations: BTreeMap<OperationId, One>,
}

struct One {
    report: watch::Receiver<Arc<ResetReport>>,
    ended: Option<Instant>,
}

/// What was begun, for the thread that does it.
pub(super) struct Begun {
    pub(super) plan: Arc<ResetPlan>,
    pub(super) sender: watch::Sender<Arc<ResetReport>>,
}

impl Default for Kept {
    fn default() -> Self {
        let all = All {
            // By chance, so that what a client remembers of an earlier daemon names
            // nothing of this one; far below the end of the numbers.
            next: (RandomState::new().hash_one(0) >> 16) + 1,
            is_stopping: false,
            plans: BTreeMap::new(),
            operations: BTreeMap::new(),
        };
        Self(Arc::new(Shared {
            all: Mutex::new(all),
            ended: Condvar::new(),
        }))
    }
}

impl Kept {
    /// Keeps a plan for whoever made it.
    pub(super) fn keep(&self, uid: u32, plan: Arc<ResetPlan>, now: Instant) -> PlanId {
        let mut all = self.lock(now);
        let id = PlanId(all.number());
        all.plans.insert(id, (uid, plan, now));
        while all.plans.len() > MOST {
            all.plans.pop_first();
        }
        id
    }

    /// Takes a plan of this user, to be carried out. One at a time: two would look
    /// for each other's GPUs while they are gone.
    ///
    /// # Errors
    /// [`Refusal::Expired`], [`Refusal::Busy`] while another goes on, and
    /// [`Refusal::Unavailable`] after [`Self::stop`].
    pub(super) fn begin(
        &self,
        uid: u32,
        id: PlanId,
        now: Instant,
    ) -> Result<(OperationId, Begun), Refusal> {
        let mut all = self.lock(now);
        let is_theirs = all.plans.get(&id).is_some_and(|(of, ..)| *of == uid);
        if !is_theirs {
            return Err(Refusal::Expired);
        }
        if all.is_stopping {
            return Err(Refusal::Unavailable("gpukilld stops".to_owned()));
        }
        if all.is_one_under_way() {
            return Err(Refusal::Busy);
        }
        let (_, plan, _) = all.plans.remove(&id).ok_or(Refusal::Expired)?;
        let (sender, report) = watch::channel(Arc::new(ResetReport {
            version: 0,
            stage: Stage::Ending,
            outcomes: Vec::new(),
            unrecorded: None,
        }));
        let operation = OperationId(all.number());
        let one = One {
            report,
            ended: None,
        };
        all.operations.insert(operation, one);
        Ok((operation, Begun { plan, sender }))
    }

    /// It is over.
    pub(super) fn end(&self, id: OperationId, now: Instant) {
        if let Some(one) = self.lock(now).operations.get_mut(&id) {
            one.ended = Some(now);
        }
        self.0.ended.notify_all();
    }

    /// Lets nothing begin from now on, and waits until nothing is under way, but not
    /// past the deadline; whether that was in time.
    pub(super) fn stop(&self, deadline: Instant) -> bool {
        let mut all = self.lock(Instant::now());
        all.is_stopping = true;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !all.is_one_under_way() || left.is_zero() {
                return !all.is_one_under_way();
            }
            let waited = self.0.ended.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether [`Self::stop`] was called.
    pub(super) fn is_stopping(&self) -> bool {
        self.lock(Instant::now()).is_stopping
    }

    /// It was not begun after all.
    pub(super) fn forget(&self, id: OperationId) {
        self.lock(Instant::now()).operations.remove(&id);
    }

    /// How one stands.
    pub(super) fn of(
        &self,
        id: OperationId,
        now: Instant,
    ) -> Option<watch::Receiver<Arc<ResetReport>>> {
        let all = self.lock(now);
        all.operations.get(&id).map(|one| one.report.clone())
    }

    fn lock(&self, now: Instant) -> MutexGuard<'_, All> {
        // Nothing panics while it holds this lock; if something did, what is in it
        // is whole all the same.
        let mut all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: Instant| now.saturating_duration_since(at) >= KEEP;
        all.plans.retain(|_, (_, _, since)| !is_old(*since));
        all.operations
            .retain(|_, one| !one.ended.is_some_and(is_old));
        while all.operations.len() > MOST {
            // The one that goes on is the newest.
            all.operations.pop_first();
        }
        all
    }
}

impl All {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_one_under_way(&self) -> bool {
        self.operations.values().any(|one| one.ended.is_none())
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
                patience_ms: 1,
                dry_run: false,
            },
            devices: Vec::new(),
        })
    }

    fn refusal(begun: Result<(OperationId, Begun), Refusal>) -> Option<Refusal> {
        begun.err()
    }

    #[test]
    fn a_plan_is_carried_out_once_and_by_whoever_made_it() {
        let (kept, now) = (Kept::default(), Instant::now());
        let id = kept.keep(7, plan(), now);
        assert_eq!(refusal(kept.begin(8, id, now)), Some(Refusal::Expired));
        let (operation, begun) = kept.begin(7, id, now).unwrap();
        assert_eq!(begun.plan, plan());
        assert_eq!(refusal(kept.begin(7, id, now)), Some(Refusal::Expired));
        kept.end(operation, now);
        assert!(kept.of(operation, now).is_some());
        assert!(kept.of(operation, now + KEEP).is_none());
    }

    #[test]
    fn a_plan_is_kept_for_ten_minutes() {
        let (kept, now) = (Kept::default(), Instant::now());
        let id = kept.keep(7, plan(), now);
        assert_eq!(
            refusal(kept.begin(7, id, now + KEEP)),
            Some(Refusal::Expired)
        );
    }

    #[test]
    fn one_reset_goes_on_at_a_time_and_the_other_plan_waits() {
        let (kept, now) = (Kept::default(), Instant::now());
        let (first, second) = (kept.keep(7, plan(), now), kept.keep(8, plan(), now));
        let (operation, _begun) = kept.begin(7, first, now).unwrap();
        assert_eq!(refusal(kept.begin(8, second, now)), Some(Refusal::Busy));
        kept.end(operation, now);
        assert!(kept.begin(8, second, now).is_ok());
    }

    #[test]
    fn the_end_waits_for_the_reset_under_way_and_begins_no_other() {
        let (kept, now) = (Kept::default(), Instant::now());
        assert!(kept.stop(now));
        let kept = Kept::default();
        let (first, second) = (kept.keep(7, plan(), now), kept.keep(7, plan(), now));
        let (operation, _begun) = kept.begin(7, first, now).unwrap();
        assert!(!kept.is_stopping());
        // One that does not end in time is not waited for any longer.
        assert!(!kept.stop(now + Duration::from_millis(10)));
        assert!(kept.is_stopping());
        let theirs = kept.clone();
        let ends = std::thread::spawn(move || theirs.end(operation, Instant::now()));
        assert!(kept.stop(now + KEEP));
        ends.join().unwrap();
        let stops = Refusal::Unavailable("gpukilld stops".to_owned());
        assert_eq!(refusal(kept.begin(7, second, now)), Some(stops));
    }

    #[test]
    fn the_oldest_of_too_many_plans_makes_room() {
        let (kept, now) = (Kept::default(), Instant::now());
        let ids: Vec<PlanId> = (0..=MOST).map(|_| kept.keep(7, plan(), now)).collect();
        assert_eq!(refusal(kept.begin(7, ids[0], now)), Some(Refusal::Expired));
        assert!(kept.begin(7, ids[1], now).is_ok());
    }
}
