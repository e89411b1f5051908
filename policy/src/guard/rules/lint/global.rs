//! Lints for the mode, the warnings, the default limits and `[protect]`.

use super::{Linter, policy_path};
use crate::guard::rules::{EnforcementMode, SwitchConflict};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Percent;
use std::time::Duration;

pub(super) fn check(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    check_switches(linter);
    let is_soft = rules.armed_mode == EnforcementMode::Soft;
    if is_soft && rules.enforcement.grace == Duration::ZERO {
        let what = "no grace period: except for idleness and waste, a job is ended as soon as its \
            owner is warned";
        linter.warn("enforcement.grace_period_seconds", what);
    }
    if is_soft && rules.enforcement.max_warnings == 0 {
        let what = "no owner is warned before a job is ended";
        linter.warn("enforcement.max_warnings", what);
    }
    if rules.enforcement.idle_below == Percent(0) {
        let what = "utilization is never below 0, so nothing is ever idle";
        linter.warn("enforcement.idle_below_pct", what);
    }
    linter.check_limits("global", "default_", &rules.defaults);
    check_names(linter);
    for user in &rules.users {
        if linter.is_protected(&user.name) {
            let what = "[protect] lists this user: no rule applies";
            linter.warn(&policy_path(PolicyKind::User, &user.name), what);
        }
    }
}

fn check_switches(linter: &mut Linter<'_>) {
    match linter.rules.switch_conflict {
        Some(SwitchConflict::Both) => {
            let what = "soft_enforcement is true as well: the milder mode applies, soft";
            linter.warn("enforcement.hard_enforcement", what);
        }
        Some(SwitchConflict::Neither) => {
            let what = "neither soft nor hard: the guard only records";
            linter.warn("enforcement.soft_enforcement", what);
        }
        None => {}
    }
}

/// Lints entries of `[protect]` that users can choose for their own programs, that name
/// nothing, or that match everything.
fn check_names(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    for glob in &rules.protect.processes {
        let name = &glob.typed;
        let is_script = [".py", ".sh", ".pl", ".rb"]
            .iter()
            .any(|end| name.ends_with(end));
        let is_interpreter = INTERPRETERS.contains(&name.trim_end_matches(VERSION_CHARS));
        let what = match () {
            () if is_interpreter => format!(
                "\"{name}\" is a common name of users' programs: it protects only those of root \
                and system accounts; list users or units instead"
            ),
            () if name.starts_with('/') => {
                format!(
                    "\"{name}\" is a path, and no process has such a name: write the name alone"
                )
            }
            () if is_script => format!(
                "\"{name}\" is a script, and anybody can use its name: it protects only those of \
                root; list users or units instead"
            ),
            () => continue,
        };
        linter.warn("protect.processes", what);
    }
    let has_suffix = |name: &str| name.contains('.') || name.ends_with('*');
    for glob in rules
        .protect
        .units
        .iter()
        .filter(|it| !has_suffix(&it.typed))
    {
        let name = &glob.typed;
        let what = format!("no unit has the name \"{name}\": write \"{name}.service\"");
        linter.warn("protect.units", what);
    }
    for glob in &rules.protect.units {
        let name = &glob.typed;
        let is_pattern = name.contains(['*', '?']);
        let why = match (name.starts_with("session-"), name.starts_with("user@")) {
            (false, false) => continue,
            (true, _) | (_, true) if is_pattern => {
                "a pattern matches no login session and no user@UID.service"
            }
            (true, _) => "each login session has a different number",
            (false, true) => "users' processes are in units of their own systemd, not in this one",
        };
        let what = format!(
            "\"{name}\" does not protect the processes of users: {why}; list the users \
            instead"
        );
        linter.warn("protect.units", what);
    }
    let command = rules.protect.command.as_ref();
    if command.is_some_and(|it| ["", "a program"].iter().all(|line| it.regex.is_match(line))) {
        let what = "it matches every command line: no rule ever applies";
        linter.warn("protect.command", what);
    }
}

/// Interpreters, which run the programs of many people, and the characters of their version
/// suffixes.
const INTERPRETERS: [&str; 9] = [
    "python", "bash", "sh", "zsh", "perl", "ruby", "node", "java", "julia",
];
const VERSION_CHARS: [char; 13] = [
    '*', '?', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9',
];
