//! Plans that wait to be carried out.

use super::{Owner, ids};
use gpukill_policy::access::LimitGroup;
use gpukill_proto::kill::{KillPlan, PlanId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A plan is kept for so long: what it was made of has changed then.
const KEEP: Duration = Duration::from_secs(600);

/// So many of one person; then the oldest makes room.
const OF_ONE: usize = 8;

/// So many in all; then the oldest of the person with most makes room.
const MOST: usize = 64;

/// A few plans of each caller, each for ten minutes. Clones share them.
#[derive(Clone)]
pub(super) struct Plans(Arc<Mutex<Kept>>);

struct Kept {
    next: u64,
    plans: BTreeMap<PlanId, One>,
}

struct One {
    owner: Owner,
    group: LimitGroup,
    plan: Arc<KillPlan>,
    since: Instant,
}

impl Default for Plans {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Kept {
            next: ids::first(),
            plans: BTreeMap::new(),
        })))
    }
}

impl Plans {
    /// Keeps a plan for its owner, among those of a group.
    pub(super) fn keep(
        &self,
        (owner, group): (Owner, LimitGroup),
        plan: Arc<KillPlan>,
        now: Instant,
    ) -> PlanId {
        let mut kept = self.lock(now);
        while kept.of(group).count() >= OF_ONE {
            kept.drop_oldest_of(group);
        }
        while kept.plans.len() >= MOST {
            // The oldest last: of those who have equally many, it is theirs. The only
            // plan of a person stays while another one has more.
            let most = kept.plans.values().rev().map(|one| one.group);
            let Some(most) = most.max_by_key(|group| kept.of(*group).count()) else {
                break;
            };
            kept.drop_oldest_of(most);
        }
        let id = PlanId(kept.next);
        kept.next += 1;
        let one = One {
            owner,
            group,
            plan,
            since: now,
        };
        kept.plans.insert(id, one);
        id
    }

    /// A plan of this owner.
    pub(super) fn of(&self, owner: Owner, id: PlanId, now: Instant) -> Option<Arc<KillPlan>> {
        let kept = self.lock(now);
        let one = kept.plans.get(&id).filter(|one| one.owner == owner)?;
        Some(Arc::clone(&one.plan))
    }

    /// A plan of this owner, which is kept no longer.
    pub(super) fn take(&self, owner: Owner, id: PlanId, now: Instant) -> Option<Arc<KillPlan>> {
        let mut kept = self.lock(now);
        kept.plans.get(&id).filter(|one| one.owner == owner)?;
        kept.plans.remove(&id).map(|one| one.plan)
    }

    /// Those that are not too old.
    fn lock(&self, now: Instant) -> MutexGuard<'_, Kept> {
        // Nothing panics while it holds this lock; if something did, the plans in
        // it are whole all the same.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |one: &One| now.saturating_duration_since(one.since) < KEEP;
        kept.plans.retain(|_, one| is_new(one));
        kept
    }
}

impl Kept {
    /// The oldest first: ids grow.
    fn of(&self, group: LimitGroup) -> impl Iterator<Item = PlanId> {
        let plans = self.plans.iter();
        plans
            .filter(move |(_, one)| one.group == group)
            .map(|(id, _)| *id)
    }

    fn drop_oldest_of(&mut self, group: LimitGroup) {
        let oldest = self.of(group).next();
        if let Some(oldest) = oldest {
            self.plans.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use gpukill_proto::units::Timestamp;

    fn owner(uid: u32) -> Owner {
        Owner {
            uid,
            contained_root: false,
        }
    }

    fn of(uid: u32) -> (Owner, LimitGroup) {
        (owner(uid), LimitGroup::Person(uid))
    }

    fn plan(at: i64) -> Arc<KillPlan> {
        Arc::new(KillPlan {
            at: Timestamp(at),
            ..KillPlan::default()
        })
    }

    #[test]
    fn a_plan_is_its_owners_alone_and_can_be_taken_once() {
        let (plans, now) = (Plans::default(), Instant::now());
        let id = plans.keep(of(1000), plan(7), now);
        assert_eq!(plans.of(owner(1000), id, now), Some(plan(7)));
        let contained_root = true;
        let root = |contained_root| Owner {
            contained_root,
            ..owner(0)
        };
        let roots = plans.keep(of(0), plan(8), now);
        assert_eq!(plans.of(owner(1001), id, now), None);
        assert_eq!(plans.take(owner(1001), id, now), None);
        assert_eq!(plans.take(root(contained_root), roots, now), None);
        assert_eq!(plans.take(owner(1000), id, now), Some(plan(7)));
        assert_eq!(plans.take(owner(1000), id, now), None);
    }

    #[test]
    fn a_plan_is_kept_for_ten_minutes() {
        let (plans, now) = (Plans::default(), Instant::now());
        let id = plans.keep(of(1000), plan(7), now);
        let almost = now + Duration::from_millis(599_999);
        assert_eq!(plans.of(owner(1000), id, almost), Some(plan(7)));
        assert_eq!(plans.of(owner(1000), id, now + KEEP), None);
    }

    #[test]
    fn too_many_plans_push_out_their_makers_own_oldest_ones() {
        let (plans, now) = (Plans::default(), Instant::now());
        let keep = |uid| plans.keep(of(uid), plan(0), now);
        let bobs = keep(1);
        let alices: Vec<PlanId> = (0..9).map(|_| keep(1000)).collect();
        let is_kept = |uid, id| plans.of(owner(uid), id, now).is_some();
        assert!(!is_kept(1000, alices[0]));
        assert!(alices[1..].iter().all(|id| is_kept(1000, *id)));
        assert!(is_kept(1, bobs));
        // Nine in all, and 55 others who have one each: the next one is one too
        // many, and alice has most.
        for uid in 2_000..2_055 {
            keep(uid);
        }
        assert!(is_kept(1000, alices[1]));
        keep(3_000);
        assert!(!is_kept(1000, alices[1]));
        assert!(is_kept(1, bobs));
    }

    #[test]
    fn of_those_who_have_one_plan_each_the_oldest_makes_room() {
        let (plans, now) = (Plans::default(), Instant::now());
        let keep = |uid| plans.keep(of(uid), plan(0), now);
        let oldest = keep(100_000);
        for uid in 100_001..100_063 {
            keep(uid);
        }
        let alices = keep(1000);
        keep(100_063);
        assert!(plans.of(owner(1000), alices, now).is_some());
        assert!(plans.of(owner(100_000), oldest, now).is_none());
    }
}
