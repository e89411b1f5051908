//! Warnings about rules that name users, groups or GPUs unknown on this host, where the daemon
//! runs too.

use crate::command::list::user_lookup::{local_groups, local_users, unknown_groups, unknown_users};
use crate::connect::{Daemon, RequestTimeout};
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::rules::edit::edit;
use gpukill_policy::guard::rules::lint::host::{
    HostInventory, group_names, lint_for_host, user_names,
};
use gpukill_policy::guard::rules::parse::parse;
use gpukill_policy::select::DeviceName;
use gpukill_proto::guard::edit::{GuardEdit, Lint};
use std::collections::BTreeSet;

/// Warnings about users and groups that this host does not know. Needs no daemon.
pub(super) fn user_warnings(rules: &RuleSet) -> Vec<Lint> {
    warnings_for(rules, &[])
}

/// Warnings about unknown users, groups and GPUs.
pub(super) fn all_warnings(rules: &RuleSet, daemon: &Daemon, timeout: RequestTimeout) -> Vec<Lint> {
    // A failed request is no reason to fail: warnings are optional.
    let annotated = daemon.snapshot(None, timeout).ok();
    let devices = annotated
        .iter()
        .flat_map(|annotated| &annotated.snapshot.devices);
    let devices: Vec<DeviceName<'_>> = devices.map(DeviceName::from).collect();
    warnings_for(rules, &devices)
}

/// Warnings about the rules of one edit only.
pub(super) fn edit_warnings(
    asked: &GuardEdit,
    daemon: &Daemon,
    timeout: RequestTimeout,
) -> Vec<Lint> {
    let new = match asked {
        GuardEdit::SetPolicy { .. } | GuardEdit::SetKey { .. } | GuardEdit::Replace(_) => {
            edit("", asked)
        }
        GuardEdit::RemovePolicy { .. } | GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun => {
            return Vec::new();
        }
    };
    // An edit that is not valid alone is valid together with the existing rules.
    match new.map(|text| parse(&text)) {
        Ok(Ok(rules)) => all_warnings(&rules, daemon, timeout),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

fn warnings_for(rules: &RuleSet, devices: &[DeviceName<'_>]) -> Vec<Lint> {
    let (users, groups) = (
        unknown_users(user_names(rules)),
        unknown_groups(group_names(rules)),
    );
    let known = |unknown: &BTreeSet<String>, list: fn() -> Vec<String>| match unknown.is_empty() {
        true => Vec::new(),
        false => list(),
    };
    let here = HostInventory {
        unknown_users: &users,
        known_users: &known(&users, local_users),
        unknown_groups: &groups,
        known_groups: &known(&groups, local_groups),
        devices,
    };
    lint_for_host(rules, &here)
}
