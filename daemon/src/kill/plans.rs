//! Plans that wait for their execution.

use super::{KillOwner, first_id};
use gpukill_policy::access::LimitGroup;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::kill::{KillPlan, PlanId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a plan is kept. Its facts have changed by then.
const PLAN_LIFETIME: Duration = Duration::from_secs(600);

/// How many plans one person may have; the oldest goes first.
const MAX_PER_GROUP: usize = 8 * SMALL_PLAN;

/// How many plans are kept in all. Beyond that, the oldest plan of the person with the most goes.
const MAX_PLANS: usize = 64 * SMALL_PLAN;

/// Plans are counted by their targets, each of which may take a kilobyte, and a plan with fewer
/// targets as one with so many.
const SMALL_PLAN: usize = 1_024;

/// A few plans of each caller, each for ten minutes. Clones share them.
#[derive(Clone)]
pub(super) struct PendingPlans(Arc<Mutex<PendingPlanTable>>);

struct PendingPlanTable {
    next: u64,
    plans: BTreeMap<PlanId, PendingPlan>,
}

struct PendingPlan {
    owner: KillOwner,
    group: LimitGroup,
    plan: Arc<KillPlan>,
    since: Instant,
}

impl Default for PendingPlans {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(PendingPlanTable {
            next: first_id(),
            plans: BTreeMap::new(),
        })))
    }
}

impl PendingPlans {
    /// Keeps a plan for its owner, counted in its limit group.
    pub(super) fn insert(
        &self,
        (owner, group): (KillOwner, LimitGroup),
        plan: Arc<KillPlan>,
        now: Instant,
    ) -> PlanId {
        let mut kept = self.lock(now);
        let id = PlanId(kept.next);
        kept.next += 1;
        let pending = PendingPlan {
            owner,
            group,
            plan,
            since: now,
        };
        kept.plans.insert(id, pending);
        while kept.size_of_group(group) > MAX_PER_GROUP && kept.drop_oldest_of(group, id) {}
        loop {
            // Reversed, so that of groups with equally many plans the one with the oldest plan
            // loses it. The only plan of a person stays while another person has more.
            let groups = kept.plans.values().rev().map(|pending| pending.group);
            let sizes = groups.map(|group| (kept.size_of_group(group), group));
            let Some((_, largest)) = sizes.max_by_key(|(size, _)| *size) else {
                break;
            };
            let size: usize = kept.plans.values().map(PendingPlan::size).sum();
            if size <= MAX_PLANS || !kept.drop_oldest_of(largest, id) {
                break;
            }
        }
        id
    }

    pub(super) fn get(&self, owner: KillOwner, id: PlanId, now: Instant) -> Option<Arc<KillPlan>> {
        let kept = self.lock(now);
        let pending = kept
            .plans
            .get(&id)
            .filter(|pending| pending.owner == owner)?;
        Some(Arc::clone(&pending.plan))
    }

    /// Removes and returns a plan of this owner.
    pub(super) fn take(&self, owner: KillOwner, id: PlanId, now: Instant) -> Option<Arc<KillPlan>> {
        let mut kept = self.lock(now);
        kept.plans
            .get(&id)
            .filter(|pending| pending.owner == owner)?;
        kept.plans.remove(&id).map(|pending| pending.plan)
    }

    /// Locks the table and removes expired plans.
    fn lock(&self, now: Instant) -> MutexGuard<'_, PendingPlanTable> {
        // No code panics while it holds this lock; if some did, the plans in it would still be
        // whole.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |pending: &PendingPlan| now.saturating_duration_since(pending.since) < PLAN_LIFETIME;
        kept.plans.retain_entries(|_, pending| is_new(pending));
        kept
    }
}

impl PendingPlan {
    /// How much it counts: at most the whole share of its person, which one plan may exceed.
    fn size(&self) -> usize {
        self.plan.targets.len().clamp(SMALL_PLAN, MAX_PER_GROUP)
    }
}

impl PendingPlanTable {
    /// The ids of a group's plans, oldest first: ids grow.
    fn ids_of_group(&self, group: LimitGroup) -> impl Iterator<Item = PlanId> {
        let plans = self.plans.iter();
        plans
            .filter(move |(_, pending)| pending.group == group)
            .map(|(id, _)| *id)
    }

    fn size_of_group(&self, group: LimitGroup) -> usize {
        let plans = self.plans.values();
        let of_group = plans.filter(|pending| pending.group == group);
        of_group.map(PendingPlan::size).sum()
    }

    /// Drops the oldest plan of a group; false where that is the plan `kept`.
    fn drop_oldest_of(&mut self, group: LimitGroup, kept: PlanId) -> bool {
        let oldest = self.ids_of_group(group).next();
        let oldest = oldest.filter(|oldest| *oldest != kept);
        oldest.is_some_and(|oldest| self.plans.remove(&oldest).is_some())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use gpukill_proto::kill::{KillTarget, PlannedAction};
    use gpukill_proto::model::ProcessKey;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::Timestamp;

    fn owner(uid: u32) -> KillOwner {
        KillOwner {
            uid,
            contained_root: false,
        }
    }

    fn of(uid: u32) -> (KillOwner, LimitGroup) {
        (owner(uid), LimitGroup::Person(uid))
    }

    pub(in super::super) fn plan_with_targets(targets: usize) -> Arc<KillPlan> {
        let target = KillTarget {
            key: ProcessKey {
                pid: 7,
                start_ticks: 7,
            },
            name: "python".into(),
            command: Reading::Unsupported,
            uid: Reading::Unsupported,
            owner: Reading::Unsupported,
            holds: Vec::new(),
            named: false,
            job: Reading::Unsupported,
            action: PlannedAction::End(Vec::new()),
            overridden: None,
        };
        Arc::new(KillPlan {
            targets: vec![target; targets],
            ..KillPlan::default()
        })
    }

    #[test]
    fn large_plan_displaces_own_plans() {
        let (plans, now) = (PendingPlans::default(), Instant::now());
        let keep = |uid, targets| plans.insert(of(uid), plan_with_targets(targets), now);
        let is_kept = |uid, id| plans.get(owner(uid), id, now).is_some();
        let bobs = keep(1001, 1);
        let [first, second] = [4_000, 4_000].map(|targets| keep(1000, targets));
        assert!(is_kept(1000, first));
        let third = keep(1000, 4_000);
        assert!(!is_kept(1000, first));
        assert!(is_kept(1000, second) && is_kept(1000, third));
        let largest = keep(1000, 100_000);
        assert!(!is_kept(1000, second) && !is_kept(1000, third));
        assert!(is_kept(1000, largest) && is_kept(1001, bobs));
        // With 55 others the next plan is one too many, and Alice has the most.
        for uid in 2_000..2_056 {
            keep(uid, 1);
        }
        assert!(!is_kept(1000, largest));
        assert!(is_kept(1001, bobs));
    }

    fn plan(at: i64) -> Arc<KillPlan> {
        Arc::new(KillPlan {
            at: Timestamp(at),
            ..KillPlan::default()
        })
    }

    #[test]
    fn plan_is_its_owners_and_taken_once() {
        let (plans, now) = (PendingPlans::default(), Instant::now());
        let id = plans.insert(of(1000), plan(7), now);
        assert_eq!(plans.get(owner(1000), id, now), Some(plan(7)));
        let contained_root = true;
        let root = |contained_root| KillOwner {
            contained_root,
            ..owner(0)
        };
        let roots = plans.insert(of(0), plan(8), now);
        assert_eq!(plans.get(owner(1001), id, now), None);
        assert_eq!(plans.take(owner(1001), id, now), None);
        assert_eq!(plans.take(root(contained_root), roots, now), None);
        assert_eq!(plans.take(owner(1000), id, now), Some(plan(7)));
        assert_eq!(plans.take(owner(1000), id, now), None);
    }

    #[test]
    fn plan_is_kept_ten_minutes() {
        let (plans, now) = (PendingPlans::default(), Instant::now());
        let id = plans.insert(of(1000), plan(7), now);
        let almost = now + Duration::from_millis(599_999);
        assert_eq!(plans.get(owner(1000), id, almost), Some(plan(7)));
        assert_eq!(plans.get(owner(1000), id, now + PLAN_LIFETIME), None);
    }

    #[test]
    fn own_oldest_plans_go_first() {
        let (plans, now) = (PendingPlans::default(), Instant::now());
        let keep = |uid| plans.insert(of(uid), plan(0), now);
        let bobs = keep(1);
        let alices: Vec<PlanId> = (0..9).map(|_| keep(1000)).collect();
        let is_kept = |uid, id| plans.get(owner(uid), id, now).is_some();
        assert!(!is_kept(1000, alices[0]));
        assert!(alices[1..].iter().all(|id| is_kept(1000, *id)));
        assert!(is_kept(1, bobs));
        // Nine in all, and one each of 55 others: the next plan is one too many, and alice has the
        // most.
        for uid in 2_000..2_055 {
            keep(uid);
        }
        assert!(is_kept(1000, alices[1]));
        keep(3_000);
        assert!(!is_kept(1000, alices[1]));
        assert!(is_kept(1, bobs));
    }

    #[test]
    fn oldest_goes_among_equal_owners() {
        let (plans, now) = (PendingPlans::default(), Instant::now());
        let keep = |uid| plans.insert(of(uid), plan(0), now);
        let oldest = keep(100_000);
        for uid in 100_001..100_063 {
            keep(uid);
        }
        let alices = keep(1000);
        keep(100_063);
        assert!(plans.get(owner(1000), alices, now).is_some());
        assert!(plans.get(owner(100_000), oldest, now).is_none());
    }
}
