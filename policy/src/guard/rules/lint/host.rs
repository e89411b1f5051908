//! Lints for users, groups and GPUs that do not exist on this host. They are useful for
//! rules that are written for this host alone.

use super::{Linter, policy_path};
use crate::guard::rules::{GpuSelector, RuleSet};
use crate::select::{DeviceName, DeviceSelectorError, select_devices, user_number};
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::guard::edit::{Lint, PolicyKind};
use gpukill_proto::settings::closest_name;
use std::collections::BTreeSet;

/// The known facts of a host.
#[derive(Debug, Clone, Copy)]
pub struct HostInventory<'a> {
    /// The [`user_names`] that its name service does not know.
    pub unknown_users: &'a BTreeSet<String>,
    /// Users that it has, as far as they are known: an unknown name may be a mistyped one.
    pub known_users: &'a [String],
    /// The [`group_names`] that its name service does not know.
    pub unknown_groups: &'a BTreeSet<String>,
    /// Groups that it has, as far as they are known.
    pub known_groups: &'a [String],
    /// Its devices. Empty if they are not known.
    pub devices: &'a [DeviceName<'a>],
}

/// At most this many absent GPUs are listed.
const MAX_LISTED: usize = 4;

/// The names in the rules that are those of users, if the host has such users.
#[must_use]
pub fn user_names(rules: &RuleSet) -> BTreeSet<&str> {
    let listed = user_lists(rules).into_iter().flat_map(|(_, users)| users);
    let users = rules.users.iter().map(|it| &it.name).chain(listed);
    // A number is a uid, whether or not the user has a name.
    let names = users.map(String::as_str);
    names.filter(|it| user_number(it).is_none()).into_set()
}

/// The groups of the host that the rules name.
#[must_use]
pub fn group_names(rules: &RuleSet) -> BTreeSet<&str> {
    let members = rules.groups.iter().map(|it| &it.members);
    let members = members.chain(rules.behaviours.iter().map(|it| &it.members));
    let groups = members.flat_map(|members| &members.unix_groups);
    groups.map(String::as_str).into_set()
}

/// The lists of users in the rules, each with its path.
fn user_lists<'r>(rules: &'r RuleSet) -> Vec<(String, &'r Vec<String>)> {
    let mut listed = vec![("protect.users".to_owned(), &rules.protect.users)];
    let mut add = |kind, name: &str, lists: &[(&str, &'r Vec<String>)]| {
        let at = policy_path(kind, name);
        let lists = lists.iter();
        listed.extend(lists.map(|(key, users)| (format!("{at}.{key}"), *users)));
    };
    for policy in &rules.groups {
        add(
            PolicyKind::Group,
            &policy.name,
            &[("members", &policy.members.users)],
        );
    }
    for policy in &rules.gpus {
        let (allowed, blocked) = (&policy.allowed_users, &policy.blocked_users);
        let lists = [("allowed_users", allowed), ("blocked_users", blocked)];
        add(PolicyKind::Gpu, &policy.name, &lists);
    }
    for policy in &rules.times {
        let (allowed, blocked) = (&policy.allowed_users, &policy.blocked_users);
        let lists = [("allowed_users", allowed), ("blocked_users", blocked)];
        add(PolicyKind::Time, &policy.name, &lists);
    }
    for policy in &rules.behaviours {
        let (users, except) = (&policy.members.users, &policy.except_users);
        let lists = [("users", users), ("except_users", except)];
        add(PolicyKind::Rule, &policy.name, &lists);
    }
    listed
}

/// Lints names that do not exist on this host, ordered by line. A name may also be that of
/// a container. Patterns are not checked: they are meant for hosts that differ.
#[must_use]
pub fn lint_for_host(rules: &RuleSet, host: &HostInventory<'_>) -> Vec<Lint> {
    let mut linter = Linter {
        rules,
        warnings: Vec::new(),
    };
    for user in &rules.users {
        let at = policy_path(PolicyKind::User, &user.name);
        check_unknown_users(&mut linter, host, &at, [&user.name]);
        check_absent_gpus(
            &mut linter,
            host,
            &format!("{at}.allowed_gpus"),
            &user.allowed_gpus,
        );
        check_absent_gpus(
            &mut linter,
            host,
            &format!("{at}.blocked_gpus"),
            &user.blocked_gpus,
        );
    }
    for group in &rules.groups {
        let at = policy_path(PolicyKind::Group, &group.name);
        check_absent_gpus(
            &mut linter,
            host,
            &format!("{at}.allowed_gpus"),
            &group.allowed_gpus,
        );
        check_absent_gpus(
            &mut linter,
            host,
            &format!("{at}.blocked_gpus"),
            &group.blocked_gpus,
        );
    }
    for (at, users) in user_lists(rules) {
        check_unknown_users(&mut linter, host, &at, users);
    }
    let groups = rules.groups.iter();
    let groups = groups.map(|it| (policy_path(PolicyKind::Group, &it.name), &it.members));
    let behaviours = rules.behaviours.iter();
    let behaviours = behaviours.map(|it| (policy_path(PolicyKind::Rule, &it.name), &it.members));
    for (at, members) in groups.chain(behaviours) {
        let at = format!("{at}.unix_groups");
        let groups = members.unix_groups.iter();
        let unknown = groups.filter(|group| host.unknown_groups.contains(*group));
        warn_unknown(&mut linter, "group", &at, unknown, host.known_groups);
    }
    let gpus = rules.gpus.iter();
    let gpus = gpus.map(|it| (policy_path(PolicyKind::Gpu, &it.name), &it.gpus));
    let times = rules.times.iter();
    let times = times.map(|it| (policy_path(PolicyKind::Time, &it.name), &it.gpus));
    let behaviours = rules.behaviours.iter();
    let behaviours = behaviours.map(|it| (policy_path(PolicyKind::Rule, &it.name), &it.gpus));
    for (at, gpus) in gpus.chain(times).chain(behaviours) {
        // A GPU policy without `gpus` selects its GPUs by its own name.
        let listed = format!("{at}.gpus");
        let at = if linter.has_key(&listed) { listed } else { at };
        check_absent_gpus(&mut linter, host, &at, gpus);
    }
    linter.warnings.sort_indirect();
    linter.warnings
}

fn check_unknown_users<'a>(
    linter: &mut Linter<'_>,
    here: &HostInventory<'_>,
    at: &str,
    names: impl IntoIterator<Item = &'a String>,
) {
    let names = names.into_iter();
    let unknown = names.filter(|name| here.unknown_users.contains(*name));
    warn_unknown(linter, "user", at, unknown, here.known_users);
}

fn warn_unknown<'a>(
    linter: &mut Linter<'_>,
    what: &str,
    at: &str,
    unknown: impl Iterator<Item = &'a String>,
    known: &[String],
) {
    let known = || known.iter().map(String::as_str);
    let names = unknown.map(|name| match closest_name(name, known()) {
        Some(near) => format!("{name} (did you mean {near}?)"),
        None => name.clone(),
    });
    let names: Vec<String> = names.collect();
    if !names.is_empty() {
        let names = names.join(", ");
        linter.warn(at, format!("unknown {what} on this host: {names}"));
    }
}

fn check_absent_gpus(
    linter: &mut Linter<'_>,
    host: &HostInventory<'_>,
    at: &str,
    gpus: &[GpuSelector],
) {
    if host.devices.is_empty() {
        return;
    }
    let parts = gpus.iter().flat_map(|gpu| gpu.0.split(','));
    let is_absent = |part: &&str| {
        // A pattern may be meant for GPUs to come.
        let found = select_devices(part, host.devices);
        matches!(found, Err(DeviceSelectorError::Unknown { .. }))
    };
    let mut absent: Vec<&str> = Vec::new();
    for part in parts.map(str::trim).filter(is_absent) {
        if !absent.contains(&part) {
            absent.push(part);
        }
    }
    let listed = absent.iter().take(MAX_LISTED).copied();
    let listed = listed.collect::<Vec<_>>().join(", ");
    match absent.len().saturating_sub(MAX_LISTED) {
        _ if absent.is_empty() => {}
        0 => linter.warn(at, format!("this host has no GPU {listed}")),
        // A range expands to as many GPUs.
        more => linter.warn(
            at,
            format!("this host has no GPU {listed}, nor {more} others"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::rules::parse::parse;

    const RULES: &str = "[protect]\nusers = ['gdm', 'bob']\n[user_policies.alcie]\nmemory_limit_gb = 8\nallowed_gpus = ['0-9', 2]\n[user_policies.1001]\nblocked_gpus = ['*H100*']\n[group_policies.g]\nmembers = ['bob', 'carol']\ntotal_memory_limit_gb = 8\nblocked_gpus = ['8-9']\n[gpu_policies.7]\nmax_memory_gb = 8\n[gpu_policies.big]\ngpus = ['GPU-8f3c', 1, 5]\nmax_memory_gb = 8\nallowed_users = ['dan', 'eve']\nblocked_users = ['dan']\n[[rules]]\nname = 'r'\nusers = ['eve']\nexcept_users = ['dan']\nidle_limit_minutes = 5\n[[time_policies]]\nname = 't'\nstart_time = '08:00'\nend_time = '09:00'\nallowed_users = ['dan']\nblocked_users = ['eve', 'dan']\n";

    fn lint_with(strangers: &[&str], devices: &[DeviceName<'_>]) -> Vec<String> {
        let rules = parse(RULES).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let strangers: BTreeSet<String> = strangers.iter().map(ToString::to_string).collect();
        let host = HostInventory {
            unknown_users: &strangers,
            known_users: &["alice".to_owned(), "root".to_owned()],
            unknown_groups: &BTreeSet::new(),
            known_groups: &[],
            devices,
        };
        let found = lint_for_host(&rules, &host);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reports_absent_users_and_gpus() {
        let device = |index, id| DeviceName {
            index,
            id,
            pci: None,
            name: None,
        };
        let two = [device(0, "GPU-1111"), device(1, "GPU-2222")];
        assert_eq!(
            lint_with(&["gdm", "alcie", "dan"], &two),
            [
                "line 2: protect.users: unknown user on this host: gdm",
                "line 3: user_policies.alcie: unknown user on this host: alcie (did you mean alice?)",
                "line 5: user_policies.alcie.allowed_gpus: this host has no GPU 2, 3, 4, 5, nor 4 \
                others",
                "line 11: group_policies.g.blocked_gpus: this host has no GPU 8, 9",
                "line 12: gpu_policies.7: this host has no GPU 7",
                "line 15: gpu_policies.big.gpus: this host has no GPU GPU-8f3c, 5",
                "line 17: gpu_policies.big.allowed_users: unknown user on this host: dan",
                "line 18: gpu_policies.big.blocked_users: unknown user on this host: dan",
                "line 22: rules.r.except_users: unknown user on this host: dan",
                "line 28: time_policies.t.allowed_users: unknown user on this host: dan",
                "line 29: time_policies.t.blocked_users: unknown user on this host: dan",
            ]
        );
        // If nothing is known of the host, nothing is reported.
        assert_eq!(lint_with(&[], &[]), Vec::<String>::new());
    }

    #[test]
    fn reports_absent_groups() {
        let text = "[group_policies.g]\nunix_groups = ['ml', 'mll']\n\
            total_memory_limit_gb = 8\n[[rules]]\nname = 'r'\nunix_groups = ['4242', 'ml']\n\
            idle_limit_minutes = 5\n";
        let rules = parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let named: Vec<&str> = group_names(&rules).into_iter().collect();
        assert_eq!(named, ["4242", "ml", "mll"]);
        let no_groups: BTreeSet<String> = ["4242", "mll"].map(str::to_owned).into();
        let host = HostInventory {
            unknown_users: &no_groups,
            known_users: &[],
            unknown_groups: &no_groups,
            known_groups: &["ml".to_owned()],
            devices: &[],
        };
        let listed: Vec<String> = lint_for_host(&rules, &host)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            listed,
            [
                "line 2: group_policies.g.unix_groups: unknown group on this host: mll (did you mean ml?)",
                "line 6: rules.r.unix_groups: unknown group on this host: 4242",
            ]
        );
    }

    #[test]
    fn user_names_exclude_numbers() {
        let rules = parse(RULES).unwrap();
        let named: Vec<&str> = user_names(&rules).into_iter().collect();
        assert_eq!(named, ["alcie", "bob", "carol", "dan", "eve", "gdm"]);
    }
}
