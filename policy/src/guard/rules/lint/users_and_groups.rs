//! Lints for user and group policies.

use super::{Linter, policy_path};
use crate::guard::rules::{GpuSelector, GroupPolicy, Limits, Members, UserPolicy};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Bytes;
use std::fmt;

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn check(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    for user in &rules.users {
        check_user(linter, user);
    }
    for group in &rules.groups {
        check_group(linter, group);
        check_members(linter, group);
    }
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
    let is_spared = group
        .members
        .users
        .iter()
        .all(|user| linter.is_protected(user));
    if is_spared && !by_name_alone.is_empty() && group.members == by_name_alone {
        linter.warn(
            &format!("{at}.members"),
            "all members are in [protect], so this never matches",
        );
    }
    check_against_totals(linter, &at, "its own", &group.limits, group);
}

/// Lints the user policies of a group's members against its totals.
fn check_members(linter: &mut Linter<'_>, group: &GroupPolicy) {
    let (rules, named) = (linter.rules, &group.members.users);
    for user in rules.users.iter().filter(|it| named.contains(&it.name)) {
        let at = policy_path(PolicyKind::User, &user.name);
        let group_text = format!("group {}'s", group.name);
        check_against_totals(linter, &at, &group_text, &user.limits, group);
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
