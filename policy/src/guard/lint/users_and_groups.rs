//! Lints for user and group policies.

use super::global::has_idle_limit;
use super::{Linter, policy_path};
use crate::guard::rules::{GpuSelector, GroupPolicy, Limits, Measures, Members, UserPolicy};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::GuardAction;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn check(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    check_idle(linter);
    let users: BTreeMap<&str, &UserPolicy> = rules
        .users
        .iter()
        .map(|it| (it.name.as_str(), it))
        .into_map();
    for user in &rules.users {
        check_user(linter, user);
    }
    for group in &rules.groups {
        check_group(linter, group);
        check_members(linter, group, &users);
    }
}

/// Lints a minimum memory for idleness where no policy has an idle limit.
fn check_idle(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    if has_idle_limit(rules) {
        return;
    }
    let of_users = rules.users.iter().flat_map(|user| {
        let at = policy_path(PolicyKind::User, &user.name);
        let overrides = user.overrides.iter().enumerate();
        let overrides: Vec<_> = overrides
            .map(|(position, it)| (format!("{at}.time_overrides[{position}]"), &it.limits))
            .collect();
        overrides.into_iter().chain([(at, &user.limits)])
    });
    let of_groups = rules.groups.iter();
    let of_groups = of_groups.map(|it| (policy_path(PolicyKind::Group, &it.name), &it.limits));
    let of_times = rules.times.iter();
    let of_times = of_times.map(|it| (policy_path(PolicyKind::Time, &it.name), &it.limits));
    for (at, limits) in of_users.chain(of_groups).chain(of_times) {
        if limits.idle_min_memory.is_some() {
            let what = "it has no effect without an idle limit";
            linter.warn(&format!("{at}.idle_min_memory_gb"), what);
        }
    }
}

/// Whether a user policy has measures that apply to every rule.
fn is_milder(measures: &Measures) -> bool {
    let Measures {
        action,
        mode,
        grace,
        max_snoozes,
        message: _,
    } = measures;
    *action == Some(GuardAction::Warn) || mode.is_some() || grace.is_some() || max_snoozes.is_some()
}

fn check_user(linter: &mut Linter<'_>, user: &UserPolicy) {
    let at = policy_path(PolicyKind::User, &user.name);
    linter.check_mode(&at, &user.measures);
    linter.check_utilization_limit(
        &format!("{at}.utilization_limit_pct"),
        user.limits.utilization,
    );
    linter.check_memory_limit(&format!("{at}.memory_limit_gb"), user.limits.memory);
    let allowed = ("allowed_gpus", user.allowed_gpus.as_slice());
    linter.check_allowed_and_blocked(&at, allowed, ("blocked_gpus", &user.blocked_gpus));
    let says_nothing = user.limits == Limits::default()
        && user.priority.is_none()
        && user.allowed_gpus.is_empty()
        && user.blocked_gpus.is_empty()
        && user.overrides.is_empty()
        // These apply to every rule that the user breaks.
        && !is_milder(&user.measures);
    if says_nothing {
        linter.warn(&at, "it sets no limit");
    }
    for (position, over) in user.overrides.iter().enumerate() {
        let at_override = format!("{at}.time_overrides[{position}]");
        linter.check_hours(&at_override, &over.hours);
        linter.check_utilization_limit(
            &format!("{at_override}.utilization_limit_pct"),
            over.limits.utilization,
        );
        linter.check_memory_limit(
            &format!("{at_override}.memory_limit_gb"),
            over.limits.memory,
        );
        if over.limits == Limits::default() {
            linter.warn(&at_override, "it sets no limit");
        }
        if Linter::covers_whole_week(&over.hours) {
            for name in common_limit_keys(&over.limits, &user.limits) {
                let what = "time_overrides always replaces it, so it never applies";
                linter.warn(&format!("{at}.{name}"), what);
            }
        }
    }
}

fn check_group(linter: &mut Linter<'_>, group: &GroupPolicy) {
    let at = policy_path(PolicyKind::Group, &group.name);
    linter.check_mode(&at, &group.measures);
    linter.check_limits(&at, "", &group.limits);
    linter.check_utilization_limit(
        &format!("{at}.total_utilization_limit_pct"),
        group.total_utilization,
    );
    linter.check_memory_limit(&format!("{at}.total_memory_limit_gb"), group.total_memory);
    if group.total_memory == Some(Bytes(0)) {
        linter.warn(
            &format!("{at}.total_memory_limit_gb"),
            "no member may use any GPU",
        );
    }
    if group.total_processes == Some(0) {
        linter.warn(
            &format!("{at}.max_concurrent_processes"),
            "no member may use any GPU",
        );
    }
    let allowed = ("allowed_gpus", group.allowed_gpus.as_slice());
    linter.check_allowed_and_blocked(&at, allowed, ("blocked_gpus", &group.blocked_gpus));
    if group.members == Members::default() {
        linter.warn(&at, "it has no members");
    }
    let by_name_alone = Members {
        users: group.members.users.clone(),
        ..Members::default()
    };
    let is_exempt = group
        .members
        .users
        .iter()
        .all(|user| linter.is_protected(user));
    if is_exempt && !by_name_alone.is_empty() && group.members == by_name_alone {
        linter.warn(
            &format!("{at}.members"),
            "all members are in [protect], so this never matches",
        );
    }
    let says_nothing = group.limits == Limits::default()
        && group.total_memory.is_none()
        && group.total_utilization.is_none()
        && group.total_processes.is_none()
        && group.priority.is_none()
        && group.allowed_gpus.is_empty()
        && group.blocked_gpus.is_empty();
    if says_nothing {
        linter.warn(&at, "it sets no limit");
    }
    check_against_totals(linter, &at, "its own", &group.limits, group);
}

/// Lints a group together with the user policies of its members.
fn check_members(
    linter: &mut Linter<'_>,
    group: &GroupPolicy,
    users: &BTreeMap<&str, &UserPolicy>,
) {
    let named = &group.members.users;
    let policies: Vec<&UserPolicy> = named
        .iter()
        .filter_map(|name| users.get(name.as_str()).copied())
        .collect();
    for user in &policies {
        let at = policy_path(PolicyKind::User, &user.name);
        let group_text = format!("group {}'s", group.name);
        check_against_totals(linter, &at, &group_text, &user.limits, group);
    }
    let by_name_alone = Members {
        users: named.clone(),
        ..Members::default()
    };
    if group.members != by_name_alone || named.is_empty() || policies.len() < named.len() {
        return;
    }
    let at = policy_path(PolicyKind::Group, &group.name);
    for name in LIMIT_KEYS {
        let is_replaced = policies
            .iter()
            .all(|user| common_limit_keys(&user.limits, &group.limits).contains(&name));
        if is_replaced {
            let key = match name {
                "max_concurrent_processes" => "max_concurrent_processes_each",
                other => other,
            };
            let what = "each member has a user policy that replaces it, so it never applies";
            linter.warn(&format!("{at}.{key}"), what);
        }
    }
}

/// Lints a person's limit above the total of the group.
fn check_against_totals(
    linter: &mut Linter<'_>,
    at: &str,
    group_text: &str,
    limits: &Limits,
    group: &GroupPolicy,
) {
    if let (Some(each), Some(total)) = (limits.memory, group.total_memory)
        && each > total
    {
        let (each, total) = (each.as_gib(), total.as_gib());
        let what = format!("{each} is more than {group_text} total_memory_limit_gb, {total}");
        linter.warn(&format!("{at}.memory_limit_gb"), what);
    }
    if let (Some(each), Some(total)) = (limits.processes, group.total_processes)
        && each > total
    {
        let what = format!("{each} is more than {group_text} max_concurrent_processes, {total}");
        let is_group = at.starts_with(PolicyKind::Group.table());
        let suffix = if is_group { "_each" } else { "" };
        linter.warn(&format!("{at}.max_concurrent_processes{suffix}"), what);
    }
}

const LIMIT_KEYS: [&str; 6] = [
    "memory_limit_gb",
    "utilization_limit_pct",
    "duration_limit_hours",
    "max_concurrent_processes",
    "idle_limit_minutes",
    "idle_min_memory_gb",
];

/// The limits that both set.
pub(super) fn common_limit_keys(some: &Limits, other: &Limits) -> Vec<&'static str> {
    let both = [
        some.memory.is_some() && other.memory.is_some(),
        some.utilization.is_some() && other.utilization.is_some(),
        some.duration.is_some() && other.duration.is_some(),
        some.processes.is_some() && other.processes.is_some(),
        some.idle.is_some() && other.idle.is_some(),
        some.idle_min_memory.is_some() && other.idle_min_memory.is_some(),
    ];
    let named = LIMIT_KEYS.into_iter().zip(both);
    named.filter(|(_, is)| *is).map(|(name, _)| name).collect()
}
