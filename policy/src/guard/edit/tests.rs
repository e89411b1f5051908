//! Changes of rules: what becomes of the text, and what is refused.

mod others;

mod ends;

use super::*;

const BEFORE: &str = include_str!("tests/before.toml");

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    fields.iter().map(owned).collect()
}

fn set(kind: PolicyKind, name: &str, keys: &[(&str, &str)]) -> GuardEdit {
    GuardEdit::SetPolicy {
        kind,
        name: name.to_owned(),
        fields: fields(keys),
    }
}

fn remove(kind: PolicyKind, name: &str) -> GuardEdit {
    GuardEdit::RemovePolicy {
        kind,
        name: name.to_owned(),
    }
}

fn key_set(path: &str, value: &str) -> GuardEdit {
    GuardEdit::SetKey {
        path: path.to_owned(),
        value: value.to_owned(),
    }
}

fn done(text: &str, change: &GuardEdit) -> String {
    edit(text, change).unwrap_or_else(|error| panic!("{change:?}: {error}"))
}

/// The lines that a change takes and adds, in their order.
fn changed(text: &str, change: &GuardEdit) -> Vec<String> {
    let after = done(text, change);
    let (before, after): (Vec<&str>, Vec<&str>) = (text.lines().collect(), after.lines().collect());
    let same = before
        .iter()
        .zip(&after)
        .take_while(|(a, b)| a == b)
        .count();
    let (before, after) = (&before[same..], &after[same..]);
    let same = before.iter().rev().zip(after.iter().rev());
    let same = same.take_while(|(a, b)| a == b).count();
    let taken = before[..before.len() - same]
        .iter()
        .map(|line| format!("-{line}"));
    let added = after[..after.len() - same]
        .iter()
        .map(|line| format!("+{line}"));
    taken.chain(added).collect()
}

fn refused(text: &str, change: &GuardEdit) -> String {
    match edit(text, change) {
        Ok(text) => panic!("{change:?} makes\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_change_leaves_all_else_as_it_is_written() {
    use PolicyKind::{Gpu, Group, Rule, Time, User};
    let cases: &[(GuardEdit, &[&str])] = &[
        (
            set(User, "alice", &[("memory_limit_gb", "12")]),
            &[
                "-memory_limit_gb   = 8.0   # since May",
                "+memory_limit_gb   = 12   # since May",
            ],
        ),
        (
            set(
                User,
                "alice",
                &[
                    ("allowed_gpus", "0,2-3"),
                    ("grace", "10m"),
                    ("message", "hello, you"),
                ],
            ),
            &[
                "+allowed_gpus = [0, \"2-3\"]",
                "+grace = \"10m\"",
                "+message = \"hello, you\"",
            ],
        ),
        (
            set(User, "alice", &[("memory_limit_gb", "")]),
            &[
                "-# As much as her card has.",
                "-memory_limit_gb   = 8.0   # since May",
                "-",
            ],
        ),
        (
            set(
                User,
                "1001",
                &[("idle_limit_minutes", "90m"), ("mode", "dry-run")],
            ),
            &[
                "+[user_policies.1001]",
                "+idle_limit_minutes = \"90m\"",
                "+mode = \"dry-run\"",
                "+",
            ],
        ),
        (
            set(
                Group,
                "lab",
                &[("members", "alice,1001"), ("unix_groups", "1000")],
            ),
            &[
                "+",
                "+[group_policies.lab]",
                "+members = [\"alice\", 1001]",
                "+unix_groups = [\"1000\"]",
            ],
        ),
        (
            set(
                Gpu,
                "0",
                &[
                    ("allowed_users", "alice"),
                    ("maintenance_window", "{ days_of_week = 'sun' }"),
                ],
            ),
            &[
                "-allowed_users = [\"bob\"]",
                "+allowed_users = [\"alice\"]",
                "+maintenance_window = { days_of_week = 'sun' }",
            ],
        ),
        (
            set(
                Time,
                "night",
                &[("start_time", "21:00"), ("days_of_week", "mon-fri")],
            ),
            &[
                "-start_time = \"22:00\"",
                "-end_time = \"06:00\"",
                "-memory_limit_gb = 64",
                "+start_time = \"21:00\"",
                "+end_time = \"06:00\"",
                "+memory_limit_gb = 64",
                "+days_of_week = \"mon-fri\"",
            ],
        ),
        (
            set(Rule, "waste", &[("waste_below_pct", "5")]),
            &[
                "+",
                "+[[rules]]",
                "+name = \"waste\"",
                "+waste_below_pct = 5",
            ],
        ),
        (
            set(
                Rule,
                "miners",
                &[("rogue_threats", "crypto_miner"), ("rogue_risk", "high")],
            ),
            &[
                "+",
                "+[[rules]]",
                "+name = \"miners\"",
                "+rogue_threats = [\"crypto_miner\"]",
                "+rogue_risk = \"high\"",
            ],
        ),
        (
            remove(User, "bob"),
            &[
                "-# Bob is on leave.",
                "-[user_policies.bob]",
                "-priority = 1",
                "-[[user_policies.bob.time_overrides]]",
                "-days_of_week = \"sun\"",
                "-memory_limit_gb = 1",
                "-",
            ],
        ),
        (
            remove(Time, "night"),
            &[
                "-[[time_policies]]",
                "-name = \"night\"",
                "-start_time = \"22:00\"",
                "-end_time = \"06:00\"",
                "-memory_limit_gb = 64",
                "-",
            ],
        ),
        (
            key_set("global.default_memory_limit_gb", "16"),
            &["+default_memory_limit_gb = 16"],
        ),
        (
            key_set("max_warnings", "5"),
            &["+", "+[enforcement]", "+max_warnings = 5"],
        ),
        (
            key_set("protect.users", "gdm"),
            &["+", "+[protect]", "+users = [\"gdm\"]"],
        ),
        (
            key_set("global.dry_run", ""),
            &["-dry_run = true # for now"],
        ),
        (
            key_set("user_policies.alice.priority", "9"),
            &["+priority = 9"],
        ),
        (
            GuardEdit::ToggleDryRun,
            &["-dry_run = true # for now", "+dry_run = false # for now"],
        ),
        (GuardEdit::SetMode(GuardMode::DryRun), &[]),
        (
            GuardEdit::SetMode(GuardMode::Disabled),
            &["-enabled = true", "+enabled = false"],
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(changed(BEFORE, change), *expected, "{change:?}");
    }
}

#[test]
fn what_stands_above_all_stays_when_the_first_is_removed() {
    let text = "# Rules of the lab.\n# Ask Eve.\n\n# Alice's.\n[user_policies.alice]\npriority = 1\n\n[user_policies.bob]\npriority = 2\n";
    let after = done(text, &remove(PolicyKind::User, "alice"));
    assert_eq!(
        after,
        "# Rules of the lab.\n# Ask Eve.\n\n[user_policies.bob]\npriority = 2\n"
    );
    let after = done(&after, &remove(PolicyKind::User, "bob"));
    assert_eq!(after, "# Rules of the lab.\n# Ask Eve.\n");
    let text = "[global]\n# About all.\n\n# Dry.\ndry_run = true\nenabled = true\n";
    let after = done(text, &key_set("global.dry_run", ""));
    assert_eq!(after, "[global]\n# About all.\n\nenabled = true\n");
}

#[test]
fn lines_end_as_they_did() {
    let text = "# a\r\n[global]\r\ndry_run = true # x\r\n";
    let after = done(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, "# a\r\n[global]\r\ndry_run = false # x\r\n");
}

#[test]
fn a_file_that_is_not_there_is_made() {
    let change = set(PolicyKind::User, "alice", &[("memory_limit_gb", "8")]);
    let after = done("", &change);
    assert_eq!(
        after,
        format!("{HEADER}[user_policies.alice]\nmemory_limit_gb = 8\n")
    );
    assert_eq!(done(&after, &change), after);
    let after = done("", &GuardEdit::SetMode(GuardMode::Enforce));
    assert_eq!(
        after,
        format!(
            "{HEADER}[global]\nenabled = true\ndry_run = false\n\n[enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n"
        )
    );
}

#[test]
fn each_mode_is_what_is_read_afterwards() {
    use GuardMode::{Disabled, DryRun, Enforce, Soft};
    for before in [
        "",
        BEFORE,
        "enforcement = { soft_enforcement = true, hard_enforcement = true }\n",
    ] {
        for first in [Disabled, DryRun, Soft, Enforce] {
            for second in [Disabled, DryRun, Soft, Enforce] {
                let text = done(before, &GuardEdit::SetMode(first));
                let text = done(&text, &GuardEdit::SetMode(second));
                let rules = read::read(&text).unwrap();
                assert_eq!(rules.mode, second, "{first:?}, then {second:?}:\n{text}");
                if first == Enforce && second == DryRun {
                    assert_eq!(rules.rehearsed.mode(), Enforce);
                }
            }
        }
    }
}

#[test]
fn tables_in_lines_are_changed_as_well() {
    use PolicyKind::{Rule, Time, User};
    let text = "user_policies = { a = { priority = 1 } }\nrules = [{ name = 'g', growth_gb = 1 }]\ntime_policies = []\n";
    let after = done(text, &set(User, "b", &[("priority", "2")]));
    let after = done(&after, &set(Rule, "g", &[("growth_gb", "2")]));
    let after = done(&after, &set(Rule, "h", &[("growth_gb", "3")]));
    let after = done(
        &after,
        &set(
            Time,
            "t",
            &[("days_of_week", "sun"), ("memory_limit_gb", "1")],
        ),
    );
    assert_eq!(
        after,
        "user_policies = { a = { priority = 1 } , b = { priority = 2 } }\nrules = [{ name = 'g', growth_gb = 2 }, { name = \"h\", growth_gb = 3 }]\ntime_policies = [{ name = \"t\", days_of_week = \"sun\", memory_limit_gb = 1 }]\n"
    );
    let after = done(&after, &remove(User, "a"));
    let after = done(&after, &remove(Rule, "g"));
    let after = done(&after, &remove(Time, "t"));
    let rules = read::read(&after).unwrap();
    assert_eq!(
        (rules.users.len(), rules.behaviours.len(), rules.times.len()),
        (1, 1, 0)
    );
}

#[test]
fn what_would_be_wrong_is_refused() {
    use PolicyKind::{Gpu, Rule, Time, User};
    for (change, expected) in [
        (
            set(
                User,
                "alice",
                &[("memory_limt_gb", "8"), ("priority", "1000")],
            ),
            "the rules would have mistakes\nline 13, column 1: user_policies.alice.memory_limt_gb: unknown key; did you mean memory_limit_gb?\nline 14, column 12: user_policies.alice.priority: 1000 is not a whole number from 0 to 100",
        ),
        (
            set(Gpu, "0", &[("allowed_users", "bob,b*b")]),
            "the rules would have mistakes\nline 29, column 25: gpu_policies.0.allowed_users[1]: names have no * and ? in them; everybody is meant where nobody is named",
        ),
        (
            set(Time, "day", &[("start_time", "9:00")]),
            "the rules would have mistakes\nline 27, column 1: time_policies.day: has a start_time and no end_time",
        ),
        (
            set(User, "al*", &[("priority", "1")]),
            "the rules would have mistakes\nline 21, column 16: user_policies.\"al*\": names have no * and ? in them; everybody is meant where nobody is named",
        ),
        (
            set(User, "alice", &[("priority", "")]),
            "there is no key \"priority\" in user policy \"alice\"",
        ),
        (
            remove(User, "alcie"),
            "there is no user policy \"alcie\"; did you mean alice?",
        ),
        (remove(Rule, "night"), "there is no rule \"night\""),
        (
            key_set("global.dry_rum", ""),
            "there is no key \"global.dry_rum\"",
        ),
        (
            key_set("global.dry_rum", "true"),
            "the rules would have mistakes\nline 6, column 1: global.dry_rum: unknown key; did you mean dry_run?",
        ),
        (
            key_set("globl.dry_run", "true"),
            "there is no key \"globl.dry_run\"; did you mean global.dry_run?",
        ),
        (key_set("", "1"), "there is no key \"\""),
        (key_set("a.b.c.d", "1"), "there is no key \"a.b.c.d\""),
        (
            GuardEdit::Replace("global = 1".into()),
            "the rules would have mistakes\nline 1, column 10: global: 1 is no table",
        ),
    ] {
        assert_eq!(refused(BEFORE, &change), expected, "{change:?}");
    }
    assert_eq!(
        refused("[global]\nenabeld = true\n", &GuardEdit::ToggleDryRun),
        "the rules have mistakes as they are\nline 2, column 1: global.enabeld: unknown key; did you mean enabled?"
    );
    // Broken rules are mended by whole ones.
    assert_eq!(
        done("enabeld =", &GuardEdit::Replace(BEFORE.into())),
        BEFORE
    );
}
