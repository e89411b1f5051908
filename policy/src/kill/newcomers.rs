//! Those that come to what is ended after it was planned, or are born to it meanwhile.

use super::belongs::{Kindred, at, container_key, is_younger, keeps_work, whole};
use super::{Candidate, Crowd};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{Fate, KillPlan, KillScope};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// Those of a later crowd that were born to members of what is being ended, and
/// are not in the first one: below one of them, or of a process group or session
/// that one of them began; in scope job also part of the same job, in scope
/// container in the same container. `members` are all that were ever ended, each as
/// it was when it became one: what a member that has gone began is still known by
/// it. What is found joins them for the next round.
///
/// It is never a process of somebody who has none among the members, and never
/// what only keeps people's work. In scope process it is nobody. Whether who asks
/// may end it is not judged here.
#[must_use]
pub fn newborn(
    members: &BTreeMap<ProcessKey, Candidate>,
    scope: KillScope,
    first: &Crowd,
    now: &Crowd,
) -> BTreeSet<ProcessKey> {
    if scope == KillScope::Process {
        return BTreeSet::new();
    }
    let kindred = Kindred::new(now);
    let newest = members.values().map(|member| {
        // One that came later may have found its place meanwhile.
        let found = at(now, member.kin.key);
        let found = found.filter(|it| at(first, it.kin.key).is_none());
        found.unwrap_or(member)
    });
    let members_seen: Vec<&Candidate> = newest.collect();
    let people: BTreeSet<u32> = members_seen
        .iter()
        .filter_map(|member| member.kin.person())
        .into_set();
    let mut found = BTreeSet::new();
    let mut visited = BTreeSet::new();
    let mut wholes = BTreeSet::new();
    for member in members_seen {
        // No pid is given again while a group or a session has its number.
        let is_replaced = |other: &Candidate| other.kin.key != member.kin.key;
        if !now.get(&member.kin.key.pid).is_some_and(is_replaced) {
            kindred.lineage(member, &mut visited, &mut found);
        }
        if !wholes.insert(whole(member)) {
            continue;
        }
        let others = match scope {
            KillScope::Process | KillScope::Tree => Ok(BTreeSet::new()),
            KillScope::Job => kindred.job(member),
            KillScope::Container => kindred.container(member),
        };
        // What cannot be told of a member says nothing of others.
        found.extend(others.unwrap_or_default());
    }
    found.retain(|key| {
        let person = at(now, *key).and_then(|process| process.kin.person());
        person.is_some_and(|person| people.contains(&person))
            && !members.contains_key(key)
            && at(first, *key).is_none()
    });
    found
}

/// Those that the scope of a plan reaches now from those that it names and ends, and
/// those that descend from any that it ends and began after the plan was made. None of
/// them is in the plan. As with [`newborn`], whether who asks may end them is not judged
/// here.
#[must_use]
pub fn joined(plan: &KillPlan, now: &Crowd) -> BTreeSet<ProcessKey> {
    let scope = plan.request.scope;
    if scope == KillScope::Process {
        return BTreeSet::new();
    }
    let kindred = Kindred::new(now);
    let ended = |fate: &Fate| matches!(fate, Fate::End(_));
    let named = plan.targets.iter();
    let named = named.filter(|target| target.named && ended(&target.fate));
    let mut found = BTreeSet::new();
    let mut wholes = BTreeSet::new();
    for process in named.clone().filter_map(|target| at(now, target.key)) {
        // A thousand workers of one job reach the same.
        if found.contains(&process.kin.key) && wholes.contains(&whole(process)) {
            continue;
        }
        wholes.insert(whole(process));
        // What cannot be told any more says nothing of others.
        found.extend(kindred.reach(process, scope).unwrap_or_default());
    }
    // On a box where a fork bomb has the processors, arguments are not read in time, and
    // the job of a process is not known without them.
    let (mut visited, mut descendants) = (BTreeSet::new(), BTreeSet::new());
    let ends_a_named = named.clone().next().is_some();
    let members = plan.targets.iter();
    let members = members.filter(|target| ends_a_named && ended(&target.fate));
    for member in members.filter_map(|target| at(now, target.key)) {
        kindred.lineage(member, &mut visited, &mut descendants);
    }
    let is_new = |key: &ProcessKey| key.start_ticks > plan.youngest_start_ticks;
    found.extend(descendants.into_iter().filter(is_new));
    for target in &plan.targets {
        found.remove(&target.key);
    }
    // Who runs something in a person's own container since then was shown to nobody.
    let people: BTreeSet<u32> = plan
        .targets
        .iter()
        .filter(|target| ended(&target.fate))
        .filter_map(|target| at(now, target.key)?.kin.person())
        .into_set();
    found.retain(|key| {
        at(now, *key).is_some_and(|process| {
            let is_systems = container_key(process).is_none_or(|(_, manager)| manager.is_none());
            let person = process.kin.person();
            is_systems || person.is_some_and(|person| people.contains(&person))
        })
    });
    found
}

/// Those that may be part of the job that was ended, and of which nothing says so any
/// more: they began after the plan was made, in the process group of one of its members
/// and as the same person, and their parents have ended; and what is below such a process.
/// A process group tells less than a parent does: they get no signal, and are named.
#[must_use]
pub fn strays(
    plan: &KillPlan,
    members: &BTreeMap<ProcessKey, Candidate>,
    now: &Crowd,
) -> BTreeSet<ProcessKey> {
    if plan.request.scope != KillScope::Job {
        return BTreeSet::new();
    }
    let group = |process: &Candidate| {
        let kin = &process.kin;
        (kin.group != 0).then_some((kin.group, kin.session, kin.person()?))
    };
    let groups: BTreeSet<_> = members.values().filter_map(group).into_set();
    let is_in_one = |process: &Candidate| group(process).is_some_and(|it| groups.contains(&it));
    let kindred = Kindred::new(now);
    let mut found = BTreeSet::new();
    for process in now.values() {
        let is_new = process.kin.key.start_ticks > plan.youngest_start_ticks;
        let parent = now.get(&process.parent);
        let has_parent = parent.is_some_and(|it| is_in_one(it) && is_younger(it, process));
        if is_new && is_in_one(process) && !has_parent && !keeps_work(process) {
            found.insert(process.kin.key);
            kindred.below(process, &mut BTreeSet::new(), &mut found);
        }
    }
    found.retain(|key| !members.contains_key(key));
    found
}
