//! Finds late members: processes that joined a job or were forked after the plan was
//! made.

use super::scope::{ScopeIndex, container_key, find_process, is_not_older, membership_key};
use super::{ProcessInfo, ProcessTable};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillPlan, KillScope, PlannedAction};
use gpukill_proto::model::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the processes of `now` that descend from `members` and are not in `first`:
/// below a member, or in a process group or session that a member started; in scope job
/// also in the same job, in scope container in the same container. `members` are all
/// processes that were ever ended, each as it was when it became a member, so that
/// descendants of a member that has ended are still found. The caller adds the result
/// to the members of the next round.
///
/// The result never contains a session host or a process of a person who owns no
/// member, and is empty in scope process. Whether the caller may end a process is not
/// decided here.
#[must_use]
pub fn find_forked(
    members: &BTreeMap<ProcessKey, ProcessInfo>,
    scope: KillScope,
    first: &ProcessTable,
    now: &ProcessTable,
) -> BTreeSet<ProcessKey> {
    if scope == KillScope::Process {
        return BTreeSet::new();
    }
    let scopes = ScopeIndex::new(now);
    let newest = members.values().map(|member| {
        // A late member may have changed its group since then.
        let found = find_process(now, member.lineage.key);
        let found = found.filter(|it| find_process(first, it.lineage.key).is_none());
        found.unwrap_or(member)
    });
    let members_seen: Vec<&ProcessInfo> = newest.collect();
    let people: BTreeSet<u32> = members_seen
        .iter()
        .filter_map(|member| member.lineage.person())
        .into_set();
    let mut found = BTreeSet::new();
    let mut visited = BTreeSet::new();
    let mut membership_keys = BTreeSet::new();
    for member in members_seen {
        // The kernel does not reuse a pid while a group or a session has its number.
        let is_replaced = |other: &ProcessInfo| other.lineage.key != member.lineage.key;
        if !now.get(&member.lineage.key.pid).is_some_and(is_replaced) {
            scopes.collect_descendants(member, &mut visited, &mut found);
        }
        if !membership_keys.insert(membership_key(member)) {
            continue;
        }
        let others = match scope {
            KillScope::Process | KillScope::Tree => Ok(BTreeSet::new()),
            KillScope::Job => scopes.job_members(member),
            KillScope::Container => scopes.container_members(member),
        };
        // An unknown scope of one member adds nothing.
        found.extend(others.unwrap_or_default());
    }
    found.retain(|key| {
        let person = find_process(now, *key).and_then(|process| process.lineage.person());
        person.is_some_and(|person| people.contains(&person))
            && !members.contains_key(key)
            && find_process(first, *key).is_none()
    });
    found
}

/// Returns the processes that the scope of a plan now reaches from the processes that
/// it names and ends, and descendants of any ended process that started after the plan
/// was made. The result excludes processes of the plan. As with [`find_forked`],
/// whether the caller may end them is not decided here.
#[must_use]
pub fn find_joined(plan: &KillPlan, now: &ProcessTable) -> BTreeSet<ProcessKey> {
    let scope = plan.request.scope;
    if scope == KillScope::Process {
        return BTreeSet::new();
    }
    let scopes = ScopeIndex::new(now);
    let ended = |action: &PlannedAction| matches!(action, PlannedAction::End(_));
    let named = plan.targets.iter();
    let named = named.filter(|target| target.named && ended(&target.action));
    let mut found = BTreeSet::new();
    let mut membership_keys = BTreeSet::new();
    for process in named
        .clone()
        .filter_map(|target| find_process(now, target.key))
    {
        // A thousand workers of one job have the same scope.
        if found.contains(&process.lineage.key)
            && membership_keys.contains(&membership_key(process))
        {
            continue;
        }
        membership_keys.insert(membership_key(process));
        // A scope that is unknown by now adds nothing.
        found.extend(
            scopes
                .processes_in_scope(process, scope)
                .unwrap_or_default(),
        );
    }
    // During a fork bomb, arguments are not read in time, and without them the job of a
    // process is unknown.
    let (mut visited, mut descendants) = (BTreeSet::new(), BTreeSet::new());
    let ends_a_named = named.clone().next().is_some();
    let members = plan.targets.iter();
    let members = members.filter(|target| ends_a_named && ended(&target.action));
    for member in members.filter_map(|target| find_process(now, target.key)) {
        scopes.collect_descendants(member, &mut visited, &mut descendants);
    }
    let is_new = |key: &ProcessKey| key.start_ticks > plan.youngest_start_ticks;
    found.extend(descendants.into_iter().filter(is_new));
    for target in &plan.targets {
        found.remove(&target.key);
    }
    // A user who started a process in a person's own container after the plan was not
    // shown to the caller.
    let people: BTreeSet<u32> = plan
        .targets
        .iter()
        .filter(|target| ended(&target.action))
        .filter_map(|target| find_process(now, target.key)?.lineage.person())
        .into_set();
    found.retain(|key| {
        find_process(now, *key).is_some_and(|process| {
            let is_systems = container_key(process).is_none_or(|(_, manager)| manager.is_none());
            let person = process.lineage.person();
            is_systems || person.is_some_and(|person| people.contains(&person))
        })
    });
    found
}

/// Returns processes that may be part of the ended job without proof: they started
/// after the plan was made, in the process group of a member and as the same person,
/// and their parents have ended; and the processes below them. A process group is
/// weaker evidence than a parent, so these processes get no signal and are only named.
#[must_use]
pub fn find_strays(
    plan: &KillPlan,
    members: &BTreeMap<ProcessKey, ProcessInfo>,
    now: &ProcessTable,
) -> BTreeSet<ProcessKey> {
    if plan.request.scope != KillScope::Job {
        return BTreeSet::new();
    }
    let group = |process: &ProcessInfo| {
        let lineage = &process.lineage;
        (lineage.group != 0).then_some((lineage.group, lineage.session, lineage.person()?))
    };
    let groups: BTreeSet<_> = members.values().filter_map(group).into_set();
    let is_in_one = |process: &ProcessInfo| group(process).is_some_and(|it| groups.contains(&it));
    let scopes = ScopeIndex::new(now);
    let mut found = BTreeSet::new();
    for process in now.values() {
        let is_new = process.lineage.key.start_ticks > plan.youngest_start_ticks;
        let parent = now.get(&process.parent);
        let has_parent = parent.is_some_and(|it| is_in_one(it) && is_not_older(it, process));
        if is_new && is_in_one(process) && !has_parent && !scopes.hosts_sessions(process) {
            found.insert(process.lineage.key);
            scopes.collect_below(process, &mut BTreeSet::new(), &mut found);
        }
    }
    found.retain(|key| !members.contains_key(key));
    found
}
