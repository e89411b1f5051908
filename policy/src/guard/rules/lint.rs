//! Lints for valid but probably unintended rules: rules that can never match, that contradict
//! each other, or that end jobs that the admin would not expect.
//!
//! Each part of the file has its own lints: the [`global`] sections, [`users_and_groups`],
//! [`gpus_and_times`] and [`behaviours`]; [`duplicates`] compares rules with each other.
//! [`host`] compares the rules with what exists on one host.

mod behaviours;
mod duplicates;
mod global;
mod gpus_and_times;
pub mod host;
mod users_and_groups;

use super::parse::field::quote_key;
use super::{Limits, Measures, RuleSet};
use crate::guard::schedule::Hours;
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::guard::edit::{Lint, PolicyKind};
use gpukill_proto::units::{Bytes, Percent};
use std::collections::BTreeSet;
use std::time::Duration;

/// More memory than all GPUs of any host have together: hosts of 2026 have at most 16 GPUs
/// of less than 300 GB each.
const MAX_HOST_MEMORY: Bytes = Bytes(100 << 40);

/// All lints, ordered by line.
#[must_use]
pub fn lint(rules: &RuleSet) -> Vec<Lint> {
    let mut found = Linter {
        rules,
        warnings: Vec::new(),
    };
    global::check(&mut found);
    users_and_groups::check(&mut found);
    gpus_and_times::check(&mut found);
    behaviours::check(&mut found);
    duplicates::check(&mut found);
    let mut warnings = found.warnings;
    warnings.sort_indirect();
    warnings
}

/// The uid of a user, if it is the same on every host.
fn fixed_uid(typed: &str) -> Option<u32> {
    let is_number = |typed: &&str| typed.bytes().all(|byte| byte.is_ascii_digit());
    match typed {
        "root" => Some(0),
        typed => Some(typed).filter(is_number)?.parse().ok(),
    }
}

/// Whether two names mean the same user on every host.
fn is_same_user(user: &str, other: &str) -> bool {
    user == other || (fixed_uid(user).is_some() && fixed_uid(user) == fixed_uid(other))
}

struct Linter<'a> {
    rules: &'a RuleSet,
    warnings: Vec<Lint>,
}

/// The path of a policy's table.
fn policy_path(kind: PolicyKind, name: &str) -> String {
    format!("{}.{}", kind.table(), quote_key(name))
}

impl Linter<'_> {
    /// Adds a lint about the key at this path.
    fn warn(&mut self, path: &str, what: impl Into<String>) {
        // A key that is not written gets the position of its table.
        let mut at = Some(path);
        let mut position = None;
        while let Some(path) = at.filter(|_| position.is_none()) {
            position = self.rules.positions.get(path).copied();
            at = path.rsplit_once('.').map(|(table, _)| table);
        }
        self.warnings.push(Lint {
            position,
            path: path.to_owned(),
            what: what.into(),
        });
    }

    /// Whether the file has a key at this path.
    fn has_key(&self, path: &str) -> bool {
        self.rules.positions.contains_key(path)
    }

    /// Lints limits of zero for more than one person, and limits that nothing can exceed.
    fn check_limits(&mut self, path: &str, prefix: &str, limits: &Limits) {
        let zero = [
            ("memory_limit_gb", limits.memory == Some(Bytes(0))),
            (
                "duration_limit_hours",
                limits.duration == Some(Duration::ZERO),
            ),
            ("max_concurrent_processes", limits.processes == Some(0)),
        ];
        for (name, is_zero) in zero {
            if is_zero {
                let what = "nobody may use any GPU";
                self.warn(&format!("{path}.{prefix}{name}"), what);
            }
        }
        self.check_utilization_limit(
            &format!("{path}.{prefix}utilization_limit_pct"),
            limits.utilization,
        );
        self.check_memory_limit(&format!("{path}.{prefix}memory_limit_gb"), limits.memory);
    }

    /// Lints a memory limit above the memory of any host.
    fn check_memory_limit(&mut self, path: &str, limit: Option<Bytes>) {
        if let Some(limit) = limit.filter(|limit| *limit > MAX_HOST_MEMORY) {
            let limit = limit.as_gib();
            let what =
                format!("{limit} GiB is more than the GPUs of any host have: limits are in GiB");
            self.warn(path, what);
        }
    }

    /// Lints a utilization limit of 100 %, which nothing exceeds.
    fn check_utilization_limit(&mut self, path: &str, limit: Option<Percent>) {
        if limit == Some(Percent(100)) {
            self.warn(path, "utilization never exceeds 100, so this never matches");
        }
    }

    /// Whether `[protect]` exempts this user from all rules.
    fn is_protected(&self, user: &str) -> bool {
        let mut protected = self.rules.protect.users.iter();
        protected.any(|it| is_same_user(it, user))
    }

    /// Lints users in a blocking list that `[protect]` exempts.
    fn check_protected_users(&mut self, path: &str, users: &[String]) {
        let protected = users.iter().filter(|user| self.is_protected(user));
        let protected: Vec<&str> = protected.map(String::as_str).collect();
        if !protected.is_empty() {
            let protected = protected.join(", ");
            let what = format!("[protect] lists {protected}: no rule applies to them");
            self.warn(path, what);
        }
    }

    /// Lints a mode that is harder than that of the guard, and so has no effect.
    fn check_mode(&mut self, path: &str, measures: &Measures) {
        let guard_mode = self.rules.armed_mode.mode();
        let Some(mode) = measures.mode.filter(|mode| *mode > guard_mode) else {
            return;
        };
        let (mode, guard_mode) = (mode.name(), guard_mode.name());
        let what =
            format!("\"{mode}\" is harder than the mode of the guard, {guard_mode}, which applies");
        self.warn(&format!("{path}.mode"), what);
    }

    /// Lints a window that lasts a whole day because it starts and ends at the same time.
    fn check_hours(&mut self, path: &str, hours: &Hours) {
        if hours.from == hours.to {
            let what = "it starts and ends at the same time: it lasts a whole day";
            self.warn(&format!("{path}.end_time"), what);
        }
    }

    /// Lints entries that are both allowed and blocked.
    fn check_allowed_and_blocked<T: Ord + Clone + std::fmt::Display>(
        &mut self,
        path: &str,
        (allowed_key, allowed): (&str, &[T]),
        (blocked_key, blocked): (&str, &[T]),
    ) {
        let blocked: BTreeSet<&T> = blocked.iter().into_set();
        let both: Vec<&T> = allowed.iter().filter(|it| blocked.contains(it)).collect();
        if both.is_empty() {
            return;
        }
        let path = format!("{path}.{allowed_key}");
        if both.len() == allowed.len() {
            self.warn(
                &path,
                format!(
                    "nothing is allowed: all entries are in {blocked_key}, which takes precedence"
                ),
            );
            return;
        }
        let named: Vec<String> = both.iter().map(ToString::to_string).collect();
        let named = named.join(", ");
        self.warn(
            &path,
            format!("{blocked_key} takes precedence: not allowed: {named}"),
        );
    }
}

#[cfg(test)]
mod tests;
