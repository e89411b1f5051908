//! What is odd about how far the guard goes, and about warnings.

use super::{Odd, path};
use crate::guard::rules::{Contradiction, Rehearsed, Rules};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Percent;
use std::time::Duration;

pub(super) fn check(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    check_switches(odd);
    let is_soft = rules.rehearsed == Rehearsed::Soft;
    if is_soft && rules.enforcement.grace == Duration::ZERO {
        let what = match warns_before_an_end(rules) {
            false => "no grace: a job is ended as soon as its owner is warned",
            true => {
                "no grace: a job is ended as soon as its owner is warned; for idleness and waste \
                 five minutes later"
            }
        };
        odd.warn("enforcement.grace_period_seconds", what);
    }
    let no_grace = rules.enforcement.grace == Duration::ZERO;
    if !is_soft && no_grace && has_idle_limit(rules) {
        let what = "idleness is warned of in every mode: with no grace, for five minutes";
        odd.warn("enforcement.grace_period_seconds", what);
    }
    if is_soft && rules.enforcement.max_warnings == 0 {
        let what = "nobody is warned before being ended";
        odd.warn("enforcement.max_warnings", what);
    }
    if rules.enforcement.idle_below == Percent(0) {
        let what = "utilisation is never below 0, so nothing is ever idle";
        odd.warn("enforcement.idle_below_pct", what);
    }
    odd.limits("global", "default_", &rules.defaults);
    if rules.defaults.idle_min_memory.is_some() && !has_idle_limit(rules) {
        let what = "there is no idle limit that it would belong to";
        odd.warn("global.default_idle_min_memory_gb", what);
    }
    check_names(odd);
    for user in &rules.users {
        if odd.protects(&user.name) {
            let what = "[protect] lists this user: nothing is ever judged";
            odd.warn(&path(PolicyKind::User, &user.name), what);
        }
    }
}

fn check_switches(odd: &mut Odd<'_>) {
    match odd.rules.contradiction {
        Some(Contradiction::Both) => {
            let what = "soft_enforcement is true as well: the milder holds, soft";
            odd.warn("enforcement.hard_enforcement", what);
        }
        Some(Contradiction::Neither) => {
            let what = "neither soft nor hard: it records, and does nothing";
            odd.warn("enforcement.soft_enforcement", what);
        }
        None => {}
    }
}

/// Names that no program has which is not for its user to choose.
fn check_names(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    for glob in &rules.protect.processes {
        let name = &glob.typed;
        let is_script = [".py", ".sh", ".pl", ".rb"]
            .iter()
            .any(|end| name.ends_with(end));
        let is_interpreter = INTERPRETERS.contains(&name.trim_end_matches(VERSION));
        let what = match () {
            () if is_interpreter => format!(
                "\"{name}\" is what people's own programs are called: it protects those of root and \
                 of system accounts alone; name users or units"
            ),
            () if name.starts_with('/') => {
                format!("\"{name}\" is a path, and nothing is called so: write the name alone")
            }
            () if is_script => format!(
                "\"{name}\" is a script, which anybody may call so: it protects root's alone; name \
                 users or units"
            ),
            () => continue,
        };
        odd.warn("protect.processes", what);
    }
    let has_suffix = |name: &str| name.contains('.') || name.ends_with('*');
    for glob in rules
        .protect
        .units
        .iter()
        .filter(|it| !has_suffix(&it.typed))
    {
        let name = &glob.typed;
        let what = format!("no unit is called \"{name}\": write \"{name}.service\"");
        odd.warn("protect.units", what);
    }
    for glob in &rules.protect.units {
        let name = &glob.typed;
        let is_pattern = name.contains(['*', '?']);
        let why = match (name.starts_with("session-"), name.starts_with("user@")) {
            (false, false) => continue,
            (true, _) | (_, true) if is_pattern => {
                "a pattern names no login session and no \
                user@UID.service"
            }
            (true, _) => "a login session has another number each time",
            (false, true) => "what a person starts is in units of their own systemd, not in this",
        };
        let what =
            format!("\"{name}\" does not protect what people start: {why}; name users instead");
        odd.warn("protect.units", what);
    }
    let command = rules.protect.command.as_ref();
    if command.is_some_and(|it| ["", "a program"].iter().all(|line| it.regex.is_match(line))) {
        let what = "it matches every command line: nothing is ever judged";
        odd.warn("protect.command", what);
    }
}

/// What runs the programs of many people, and how their versions are written.
const INTERPRETERS: [&str; 9] = [
    "python", "bash", "sh", "zsh", "perl", "ruby", "node", "java", "julia",
];
const VERSION: [char; 13] = [
    '*', '?', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9',
];

/// Whether any rule is about idleness or waste, which have a grace in every mode.
fn warns_before_an_end(rules: &Rules) -> bool {
    let mut behaviours = rules.behaviours.iter();
    has_idle_limit(rules) || behaviours.any(|it| it.conduct.kind().spares_services())
}

pub(super) fn has_idle_limit(rules: &Rules) -> bool {
    let overrides = rules.users.iter().flat_map(|user| &user.overrides);
    [&rules.defaults]
        .into_iter()
        .chain(rules.users.iter().map(|it| &it.limits))
        .chain(overrides.map(|it| &it.limits))
        .chain(rules.groups.iter().map(|it| &it.limits))
        .chain(rules.times.iter().map(|it| &it.limits))
        .any(|limits| limits.idle.is_some())
}
