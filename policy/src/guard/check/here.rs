//! What in rules is about nobody and nothing on this box: hardly meant where they are
//! written for it alone.

use super::{Odd, path};
use crate::guard::rules::{GpuSelector, Rules};
use crate::select::{DeviceName, NoSuchDevice, devices, user_number};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::{PolicyKind, Warning};
use std::collections::BTreeSet;

/// What is known of a box.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// Those of [`names`] whom its name service does not know.
    pub strangers: &'a BTreeSet<String>,
    /// Those of [`groups`] that it does not know either.
    pub no_groups: &'a BTreeSet<String>,
    /// Its devices; none where they are not known.
    pub devices: &'a [DeviceName<'a>],
}

/// So many of what is not there are named.
const MOST_TOLD: usize = 4;

/// Whom rules name: users of the box, if there are such.
#[must_use]
pub fn names(rules: &Rules) -> BTreeSet<&str> {
    let listed = listed(rules).into_iter().flat_map(|(_, users)| users);
    let users = rules.users.iter().map(|it| &it.name).chain(listed);
    // A number is a user's whether or not that has a name.
    let names = users.map(String::as_str);
    names.filter(|it| user_number(it).is_none()).into_set()
}

/// The groups of the box that rules name.
#[must_use]
pub fn groups(rules: &Rules) -> BTreeSet<&str> {
    let members = rules.groups.iter().map(|it| &it.members);
    let members = members.chain(rules.behaviours.iter().map(|it| &it.members));
    let groups = members.flat_map(|members| &members.unix_groups);
    groups.map(String::as_str).into_set()
}

/// The lists of users, each with its place.
fn listed<'r>(rules: &'r Rules) -> Vec<(String, &'r Vec<String>)> {
    let mut listed = vec![("protect.users".to_owned(), &rules.protect.users)];
    let mut add = |kind, name: &str, lists: &[(&str, &'r Vec<String>)]| {
        let at = path(kind, name);
        let lists = lists.iter();
        listed.extend(lists.map(|(key, users)| (format!("{at}.{key}"), *users)));
    };
    for it in &rules.groups {
        add(
            PolicyKind::Group,
            &it.name,
            &[("members", &it.members.users)],
        );
    }
    for it in &rules.gpus {
        let (allowed, blocked) = (&it.allowed_users, &it.blocked_users);
        let lists = [("allowed_users", allowed), ("blocked_users", blocked)];
        add(PolicyKind::Gpu, &it.name, &lists);
    }
    for it in &rules.times {
        let (allowed, blocked) = (&it.allowed_users, &it.blocked_users);
        let lists = [("allowed_users", allowed), ("blocked_users", blocked)];
        add(PolicyKind::Time, &it.name, &lists);
    }
    for it in &rules.behaviours {
        let (users, except) = (&it.members.users, &it.except_users);
        let lists = [("users", users), ("except_users", except)];
        add(PolicyKind::Rule, &it.name, &lists);
    }
    listed
}

/// What means nothing there, in the order of the lines. Names may be those of
/// containers too, and patterns are for boxes that differ.
#[must_use]
pub fn warnings(rules: &Rules, here: &Here<'_>) -> Vec<Warning> {
    let mut odd = Odd {
        rules,
        warnings: Vec::new(),
    };
    for user in &rules.users {
        let at = path(PolicyKind::User, &user.name);
        unknown(&mut odd, "user", here.strangers, &at, [&user.name]);
        absent(
            &mut odd,
            here,
            &format!("{at}.allowed_gpus"),
            &user.allowed_gpus,
        );
        absent(
            &mut odd,
            here,
            &format!("{at}.blocked_gpus"),
            &user.blocked_gpus,
        );
    }
    for group in &rules.groups {
        let at = path(PolicyKind::Group, &group.name);
        absent(
            &mut odd,
            here,
            &format!("{at}.allowed_gpus"),
            &group.allowed_gpus,
        );
        absent(
            &mut odd,
            here,
            &format!("{at}.blocked_gpus"),
            &group.blocked_gpus,
        );
    }
    for (at, users) in listed(rules) {
        unknown(&mut odd, "user", here.strangers, &at, users);
    }
    let groups = rules.groups.iter();
    let groups = groups.map(|it| (path(PolicyKind::Group, &it.name), &it.members));
    let behaviours = rules.behaviours.iter();
    let behaviours = behaviours.map(|it| (path(PolicyKind::Rule, &it.name), &it.members));
    for (at, members) in groups.chain(behaviours) {
        let at = format!("{at}.unix_groups");
        unknown(&mut odd, "group", here.no_groups, &at, &members.unix_groups);
    }
    let gpus = rules.gpus.iter();
    let gpus = gpus.map(|it| (path(PolicyKind::Gpu, &it.name), &it.gpus));
    let times = rules.times.iter();
    let times = times.map(|it| (path(PolicyKind::Time, &it.name), &it.gpus));
    let behaviours = rules.behaviours.iter();
    let behaviours = behaviours.map(|it| (path(PolicyKind::Rule, &it.name), &it.gpus));
    for (at, gpus) in gpus.chain(times).chain(behaviours) {
        // Of a GPU policy that does not list any, its name says which.
        let listed = format!("{at}.gpus");
        let at = if odd.says(&listed) { listed } else { at };
        absent(&mut odd, here, &at, gpus);
    }
    odd.warnings.sort_indirect();
    odd.warnings
}

fn unknown<'a>(
    odd: &mut Odd<'_>,
    what: &str,
    unknown: &BTreeSet<String>,
    at: &str,
    names: impl IntoIterator<Item = &'a String>,
) {
    let names = names.into_iter().filter(|name| unknown.contains(*name));
    let names: Vec<&str> = names.map(String::as_str).collect();
    if !names.is_empty() {
        let names = names.join(", ");
        odd.warn(at, format!("this box knows no {what} {names}"));
    }
}

fn absent(odd: &mut Odd<'_>, here: &Here<'_>, at: &str, gpus: &[GpuSelector]) {
    if here.devices.is_empty() {
        return;
    }
    let parts = gpus.iter().flat_map(|gpu| gpu.0.split(','));
    let is_absent = |part: &&str| {
        let found = devices(part, here.devices);
        !part.contains(['*', '?']) && matches!(found, Err(NoSuchDevice::Unknown { .. }))
    };
    let mut absent: Vec<&str> = Vec::new();
    for part in parts.map(str::trim).filter(is_absent) {
        if !absent.contains(&part) {
            absent.push(part);
        }
    }
    let told = absent.iter().take(MOST_TOLD).copied();
    let told = told.collect::<Vec<_>>().join(", ");
    match absent.len().saturating_sub(MOST_TOLD) {
        _ if absent.is_empty() => {}
        0 => odd.warn(at, format!("this box has no GPU {told}")),
        // A range is as many.
        more => odd.warn(at, format!("this box has no GPU {told}, nor {more} others")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::read::read;

    const RULES: &str = "[protect]\nusers = ['gdm', 'bob']\n[user_policies.alcie]\nmemory_limit_gb = 8\nallowed_gpus = ['0-9', 2]\n[user_policies.1001]\nblocked_gpus = ['*H100*']\n[group_policies.g]\nmembers = ['bob', 'carol']\ntotal_memory_limit_gb = 8\nblocked_gpus = ['8-9']\n[gpu_policies.7]\nmax_memory_gb = 8\n[gpu_policies.big]\ngpus = ['GPU-8f3c', 1, 5]\nmax_memory_gb = 8\nallowed_users = ['dan', 'eve']\nblocked_users = ['dan']\n[[rules]]\nname = 'r'\nusers = ['eve']\nexcept_users = ['dan']\nidle_limit_minutes = 5\n[[time_policies]]\nname = 't'\nstart_time = '08:00'\nend_time = '09:00'\nallowed_users = ['dan']\nblocked_users = ['eve', 'dan']\n";

    fn told(strangers: &[&str], devices: &[DeviceName<'_>]) -> Vec<String> {
        let rules = read(RULES).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let strangers: BTreeSet<String> = strangers.iter().map(ToString::to_string).collect();
        let here = Here {
            strangers: &strangers,
            no_groups: &BTreeSet::new(),
            devices,
        };
        let found = warnings(&rules, &here);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn who_and_what_is_not_on_the_box_is_warned_of() {
        let device = |index, id| DeviceName {
            index,
            id,
            pci: None,
            name: None,
        };
        let two = [device(0, "GPU-1111"), device(1, "GPU-2222")];
        assert_eq!(
            told(&["gdm", "alcie", "dan"], &two),
            [
                "line 2: protect.users: this box knows no user gdm",
                "line 3: user_policies.alcie: this box knows no user alcie",
                "line 5: user_policies.alcie.allowed_gpus: this box has no GPU 2, 3, 4, 5, nor 4 others",
                "line 11: group_policies.g.blocked_gpus: this box has no GPU 8, 9",
                "line 12: gpu_policies.7: this box has no GPU 7",
                "line 15: gpu_policies.big.gpus: this box has no GPU GPU-8f3c, 5",
                "line 17: gpu_policies.big.allowed_users: this box knows no user dan",
                "line 18: gpu_policies.big.blocked_users: this box knows no user dan",
                "line 22: rules.r.except_users: this box knows no user dan",
                "line 28: time_policies.t.allowed_users: this box knows no user dan",
                "line 29: time_policies.t.blocked_users: this box knows no user dan",
            ]
        );
        // Of what nobody knows nothing is said.
        assert_eq!(told(&[], &[]), Vec::<String>::new());
    }

    #[test]
    fn groups_that_are_not_on_the_box_are_warned_of() {
        let text = "[group_policies.g]\nunix_groups = ['ml', 'mll']\n\
            total_memory_limit_gb = 8\n[[rules]]\nname = 'r'\nunix_groups = ['4242', 'ml']\n\
            idle_limit_minutes = 5\n";
        let rules = read(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let named: Vec<&str> = groups(&rules).into_iter().collect();
        assert_eq!(named, ["4242", "ml", "mll"]);
        let no_groups: BTreeSet<String> = ["4242", "mll"].map(str::to_owned).into();
        let here = Here {
            strangers: &no_groups,
            no_groups: &no_groups,
            devices: &[],
        };
        let told: Vec<String> = warnings(&rules, &here)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "line 2: group_policies.g.unix_groups: this box knows no group mll",
                "line 6: rules.r.unix_groups: this box knows no group 4242",
            ]
        );
    }

    #[test]
    fn those_who_are_named_may_be_users_but_for_numbers() {
        let rules = read(RULES).unwrap();
        let named: Vec<&str> = names(&rules).into_iter().collect();
        assert_eq!(named, ["alcie", "bob", "carol", "dan", "eve", "gdm"]);
    }
}
