//! What is odd about what is said of persons and groups.

use super::whole::has_idle_limit;
use super::{Odd, path};
use crate::guard::rules::{GpuSelector, GroupPolicy, Limits, Measures, Members, UserPolicy};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::GuardAction;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for GpuSelector {
    /// As it was typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn check(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    check_idle(odd);
    let users: BTreeMap<&str, &UserPolicy> = rules
        .users
        .iter()
        .map(|it| (it.name.as_str(), it))
        .into_map();
    for user in &rules.users {
        check_user(odd, user);
    }
    for group in &rules.groups {
        check_group(odd, group);
        check_members(odd, group, &users);
    }
}

/// What belongs to a limit that there is nowhere.
fn check_idle(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    if has_idle_limit(rules) {
        return;
    }
    let of_users = rules.users.iter().flat_map(|user| {
        let at = path(PolicyKind::User, &user.name);
        let overrides = user.overrides.iter().enumerate();
        let overrides: Vec<_> = overrides
            .map(|(position, it)| (format!("{at}.time_overrides[{position}]"), &it.limits))
            .collect();
        overrides.into_iter().chain([(at, &user.limits)])
    });
    let of_groups = rules.groups.iter();
    let of_groups = of_groups.map(|it| (path(PolicyKind::Group, &it.name), &it.limits));
    let of_times = rules.times.iter();
    let of_times = of_times.map(|it| (path(PolicyKind::Time, &it.name), &it.limits));
    for (at, limits) in of_users.chain(of_groups).chain(of_times) {
        if limits.idle_min_memory.is_some() {
            let what = "there is no idle limit that it would belong to";
            odd.warn(&format!("{at}.idle_min_memory_gb"), what);
        }
    }
}

/// Whether what a user's own policy says of its measures holds for every rule.
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

fn check_user(odd: &mut Odd<'_>, user: &UserPolicy) {
    let at = path(PolicyKind::User, &user.name);
    odd.measures(&at, &user.measures);
    odd.never_more(
        &format!("{at}.utilization_limit_pct"),
        user.limits.utilization,
    );
    odd.too_much(&format!("{at}.memory_limit_gb"), user.limits.memory);
    let allowed = ("allowed_gpus", user.allowed_gpus.as_slice());
    odd.both(&at, allowed, ("blocked_gpus", &user.blocked_gpus));
    let says_nothing = user.limits == Limits::default()
        && user.priority.is_none()
        && user.allowed_gpus.is_empty()
        && user.blocked_gpus.is_empty()
        && user.overrides.is_empty()
        // These hold for whatever rule they break.
        && !is_milder(&user.measures);
    if says_nothing {
        odd.warn(&at, "it limits nothing");
    }
    for (position, over) in user.overrides.iter().enumerate() {
        let at_override = format!("{at}.time_overrides[{position}]");
        odd.hours(&at_override, &over.hours);
        odd.never_more(
            &format!("{at_override}.utilization_limit_pct"),
            over.limits.utilization,
        );
        odd.too_much(
            &format!("{at_override}.memory_limit_gb"),
            over.limits.memory,
        );
        if over.limits == Limits::default() {
            odd.warn(&at_override, "it limits nothing");
        }
        if Odd::is_always(&over.hours) {
            for name in said_by_both(&over.limits, &user.limits) {
                let what = "time_overrides always replaces it, so it never counts";
                odd.warn(&format!("{at}.{name}"), what);
            }
        }
    }
}

fn check_group(odd: &mut Odd<'_>, group: &GroupPolicy) {
    let at = path(PolicyKind::Group, &group.name);
    odd.measures(&at, &group.measures);
    odd.limits(&at, "", &group.limits);
    odd.never_more(
        &format!("{at}.total_utilization_limit_pct"),
        group.total_utilization,
    );
    odd.too_much(&format!("{at}.total_memory_limit_gb"), group.total_memory);
    if group.total_memory == Some(Bytes(0)) {
        odd.warn(
            &format!("{at}.total_memory_limit_gb"),
            "none of them may use any GPU",
        );
    }
    if group.total_processes == Some(0) {
        odd.warn(
            &format!("{at}.max_concurrent_processes"),
            "none of them may use any GPU",
        );
    }
    let allowed = ("allowed_gpus", group.allowed_gpus.as_slice());
    odd.both(&at, allowed, ("blocked_gpus", &group.blocked_gpus));
    if group.members == Members::default() {
        odd.warn(&at, "nobody belongs to it");
    }
    let by_name_alone = Members {
        users: group.members.users.clone(),
        ..Members::default()
    };
    let is_spared = group.members.users.iter().all(|user| odd.protects(user));
    if is_spared && !by_name_alone.names_nobody() && group.members == by_name_alone {
        odd.warn(
            &format!("{at}.members"),
            "all of them are in [protect], so this never holds",
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
        odd.warn(&at, "it limits nothing");
    }
    exceeds(odd, &at, "its own", &group.limits, group);
}

/// What is said of a group's members besides.
fn check_members(odd: &mut Odd<'_>, group: &GroupPolicy, users: &BTreeMap<&str, &UserPolicy>) {
    let named = &group.members.users;
    let policies: Vec<&UserPolicy> = named
        .iter()
        .filter_map(|name| users.get(name.as_str()).copied())
        .collect();
    for user in &policies {
        let at = path(PolicyKind::User, &user.name);
        let whose = format!("group {}'s", group.name);
        exceeds(odd, &at, &whose, &user.limits, group);
    }
    let by_name_alone = Members {
        users: named.clone(),
        ..Members::default()
    };
    if group.members != by_name_alone || named.is_empty() || policies.len() < named.len() {
        return;
    }
    let at = path(PolicyKind::Group, &group.name);
    for name in NAMES {
        let is_replaced = policies
            .iter()
            .all(|user| said_by_both(&user.limits, &group.limits).contains(&name));
        if is_replaced {
            let key = match name {
                "max_concurrent_processes" => "max_concurrent_processes_each",
                other => other,
            };
            let what = "each member has a user policy that replaces it, so it never counts";
            odd.warn(&format!("{at}.{key}"), what);
        }
    }
}

/// A person's limit that is above the total of the group.
fn exceeds(odd: &mut Odd<'_>, at: &str, whose: &str, limits: &Limits, group: &GroupPolicy) {
    if let (Some(each), Some(total)) = (limits.memory, group.total_memory)
        && each > total
    {
        let (each, total) = (each.as_gib(), total.as_gib());
        let what = format!("{each} is more than {whose} total_memory_limit_gb, {total}");
        odd.warn(&format!("{at}.memory_limit_gb"), what);
    }
    if let (Some(each), Some(total)) = (limits.processes, group.total_processes)
        && each > total
    {
        let what = format!("{each} is more than {whose} max_concurrent_processes, {total}");
        let is_group = at.starts_with(PolicyKind::Group.table());
        let suffix = if is_group { "_each" } else { "" };
        odd.warn(&format!("{at}.max_concurrent_processes{suffix}"), what);
    }
}

/// What limits are called.
const NAMES: [&str; 6] = [
    "memory_limit_gb",
    "utilization_limit_pct",
    "duration_limit_hours",
    "max_concurrent_processes",
    "idle_limit_minutes",
    "idle_min_memory_gb",
];

/// The limits that both set.
pub(super) fn said_by_both(some: &Limits, other: &Limits) -> Vec<&'static str> {
    let both = [
        some.memory.is_some() && other.memory.is_some(),
        some.utilization.is_some() && other.utilization.is_some(),
        some.duration.is_some() && other.duration.is_some(),
        some.processes.is_some() && other.processes.is_some(),
        some.idle.is_some() && other.idle.is_some(),
        some.idle_min_memory.is_some() && other.idle_min_memory.is_some(),
    ];
    let named = NAMES.into_iter().zip(both);
    named.filter(|(_, is)| *is).map(|(name, _)| name).collect()
}
