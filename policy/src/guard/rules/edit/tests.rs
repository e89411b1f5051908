//! Edits of rules: the resulting text, and the refusals.

mod other_policies;

use super::*;

const BEFORE: &str = include_str!("tests/before.toml");

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    fields.iter().map(owned).collect()
}

fn set_policy_edit(kind: PolicyKind, name: &str, keys: &[(&str, &str)]) -> GuardEdit {
    GuardEdit::SetPolicy {
        kind,
        name: name.to_owned(),
        fields: fields(keys),
    }
}

fn remove_policy_edit(kind: PolicyKind, name: &str) -> GuardEdit {
    GuardEdit::RemovePolicy {
        kind,
        name: name.to_owned(),
    }
}

fn set_key_edit(path: &str, value: &str) -> GuardEdit {
    GuardEdit::SetKey {
        path: path.to_owned(),
        value: value.to_owned(),
    }
}

fn apply(text: &str, change: &GuardEdit) -> String {
    edit(text, change).unwrap_or_else(|error| panic!("{change:?}: {error}"))
}

/// The lines that an edit removes and adds, in order.
fn changed_lines(text: &str, change: &GuardEdit) -> Vec<String> {
    let after = apply(text, change);
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

fn refusal(text: &str, change: &GuardEdit) -> String {
    match edit(text, change) {
        Ok(text) => panic!("{change:?} makes\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn keeps_all_other_text() {
    use PolicyKind::{Gpu, Group, Rule, Time, User};
    let cases: &[(GuardEdit, &[&str])] = &[
        (
            set_policy_edit(User, "alice", &[("memory_limit_gb", "12")]),
            &[
                "-memory_limit_gb   = 8.0   # since May",
                "+memory_limit_gb   = 12   # since May",
            ],
        ),
        (
            set_policy_edit(
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
            set_policy_edit(User, "alice", &[("memory_limit_gb", "")]),
            &[
                "-# As much as her card has.",
                "-memory_limit_gb   = 8.0   # since May",
                "-",
            ],
        ),
        (
            set_policy_edit(
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
            set_policy_edit(
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
            set_policy_edit(
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
            set_policy_edit(
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
            set_policy_edit(Rule, "waste", &[("waste_below_pct", "5")]),
            &[
                "+",
                "+[[rules]]",
                "+name = \"waste\"",
                "+waste_below_pct = 5",
            ],
        ),
        (
            set_policy_edit(
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
            remove_policy_edit(User, "bob"),
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
            remove_policy_edit(Time, "night"),
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
            set_key_edit("global.default_memory_limit_gb", "16"),
            &["+default_memory_limit_gb = 16"],
        ),
        (
            set_key_edit("max_warnings", "5"),
            &["+", "+[enforcement]", "+max_warnings = 5"],
        ),
        (
            set_key_edit("protect.users", "gdm"),
            &["+", "+[protect]", "+users = [\"gdm\"]"],
        ),
        (
            set_key_edit("global.dry_run", ""),
            &["-dry_run = true # for now"],
        ),
        (
            set_key_edit("user_policies.alice.priority", "9"),
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
        assert_eq!(changed_lines(BEFORE, change), *expected, "{change:?}");
    }
}

#[test]
fn keeps_the_header_of_the_file() {
    let text = "# Rules of the lab.\n# Ask Eve.\n\n# Alice's.\n[user_policies.alice]\npriority = 1\n\n[user_policies.bob]\npriority = 2\n";
    let after = apply(text, &remove_policy_edit(PolicyKind::User, "alice"));
    assert_eq!(
        after,
        "# Rules of the lab.\n# Ask Eve.\n\n[user_policies.bob]\npriority = 2\n"
    );
    let after = apply(&after, &remove_policy_edit(PolicyKind::User, "bob"));
    assert_eq!(after, "# Rules of the lab.\n# Ask Eve.\n");
    let text = "[global]\n# About all.\n\n# Dry.\ndry_run = true\nenabled = true\n";
    let after = apply(text, &set_key_edit("global.dry_run", ""));
    assert_eq!(after, "[global]\n# About all.\n\nenabled = true\n");
}

#[test]
fn keeps_line_endings() {
    let text = "# a\r\n[global]\r\ndry_run = true # x\r\n";
    let after = apply(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, "# a\r\n[global]\r\ndry_run = false # x\r\n");
}

#[test]
fn keeps_a_single_different_line_ending() {
    let text = "# a\n[global]\r\nenabled = true\n# b\ndry_run = true # x\n\n# c\n";
    let after = apply(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, text.replace("dry_run = true", "dry_run = false"));
    let after = apply(
        text,
        &set_policy_edit(PolicyKind::User, "a", &[("priority", "1")]),
    );
    assert_eq!(after.matches("\r\n").count(), 1, "{after:?}");
    assert!(after.starts_with("# a\n[global]\r\n"), "{after:?}");
    // A new line gets the line ending of the file.
    let text = "[global]\r\ndry_run = true\r\n# b\n";
    let after = apply(text, &GuardEdit::SetMode(GuardMode::Disabled));
    assert_eq!(
        after,
        "[global]\r\ndry_run = true\r\nenabled = false\r\n# b\n"
    );
}

#[test]
fn keeps_the_byte_order_mark() {
    let text = "\u{feff}[global]\ndry_run = true\n";
    let after = apply(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, "\u{feff}[global]\ndry_run = false\n");
}

#[test]
fn creates_an_absent_file() {
    let change = set_policy_edit(PolicyKind::User, "alice", &[("memory_limit_gb", "8")]);
    let after = apply("", &change);
    assert_eq!(
        after,
        format!("{HEADER}[user_policies.alice]\nmemory_limit_gb = 8\n")
    );
    assert_eq!(apply(&after, &change), after);
    let after = apply("", &GuardEdit::SetMode(GuardMode::Enforce));
    assert_eq!(
        after,
        format!(
            "{HEADER}[global]\nenabled = true\ndry_run = false\n\n[enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n"
        )
    );
}

#[test]
fn sets_each_mode() {
    use GuardMode::{Disabled, DryRun, Enforce, Soft};
    for before in [
        "",
        BEFORE,
        "enforcement = { soft_enforcement = true, hard_enforcement = true }\n",
    ] {
        for first in [Disabled, DryRun, Soft, Enforce] {
            for second in [Disabled, DryRun, Soft, Enforce] {
                let text = apply(before, &GuardEdit::SetMode(first));
                let text = apply(&text, &GuardEdit::SetMode(second));
                let rules = parse::parse(&text).unwrap();
                assert_eq!(rules.mode, second, "{first:?}, then {second:?}:\n{text}");
                if first == Enforce && second == DryRun {
                    assert_eq!(rules.armed_mode.mode(), Enforce);
                }
            }
        }
    }
}

#[test]
fn edits_inline_tables() {
    use PolicyKind::{Rule, Time, User};
    let text = "user_policies = { a = { priority = 1 } }\nrules = [{ name = 'g', growth_gb = 1 }]\ntime_policies = []\n";
    let after = apply(text, &set_policy_edit(User, "b", &[("priority", "2")]));
    let after = apply(&after, &set_policy_edit(Rule, "g", &[("growth_gb", "2")]));
    let after = apply(&after, &set_policy_edit(Rule, "h", &[("growth_gb", "3")]));
    let after = apply(
        &after,
        &set_policy_edit(
            Time,
            "t",
            &[("days_of_week", "sun"), ("memory_limit_gb", "1")],
        ),
    );
    assert_eq!(
        after,
        "user_policies = { a = { priority = 1 } , b = { priority = 2 } }\nrules = [{ name = 'g', growth_gb = 2 }, { name = \"h\", growth_gb = 3 }]\ntime_policies = [{ name = \"t\", days_of_week = \"sun\", memory_limit_gb = 1 }]\n"
    );
    let after = apply(&after, &remove_policy_edit(User, "a"));
    let after = apply(&after, &remove_policy_edit(Rule, "g"));
    let after = apply(&after, &remove_policy_edit(Time, "t"));
    let rules = parse::parse(&after).unwrap();
    assert_eq!(
        (rules.users.len(), rules.behaviours.len(), rules.times.len()),
        (1, 1, 0)
    );
}

#[test]
fn refuses_invalid_results() {
    use PolicyKind::{Gpu, Rule, Time, User};
    for (change, expected) in [
        (
            set_policy_edit(
                User,
                "alice",
                &[("memory_limt_gb", "8"), ("priority", "1000")],
            ),
            "the new rules would have mistakes\n\
             line 13, column 1: user_policies.alice.memory_limt_gb: unknown key; did you mean \
             memory_limit_gb?\n\
             line 14, column 12: user_policies.alice.priority: 1000 is not a whole number from 0 \
             to 100",
        ),
        (
            set_policy_edit(Gpu, "0", &[("allowed_users", "bob,b*b")]),
            "the new rules would have mistakes\n\
             line 29, column 25: gpu_policies.0.allowed_users[1]: a name must not contain * or ?; \
             to apply it to everybody, list no names",
        ),
        (
            set_policy_edit(Time, "day", &[("start_time", "9:00")]),
            "the new rules would have mistakes\nline 27, column 1: time_policies.day: has a \
            start_time and no end_time",
        ),
        (
            set_policy_edit(User, "al*", &[("priority", "1")]),
            "the new rules would have mistakes\nline 21, column 16: user_policies.\"al*\": a name \
            must not contain * or ?; to apply it to everybody, list no names",
        ),
        (
            set_policy_edit(User, "alice", &[("priority", "")]),
            "there is no key \"priority\" in user policy \"alice\"",
        ),
        (
            remove_policy_edit(User, "alcie"),
            "there is no user policy \"alcie\"; did you mean alice?",
        ),
        (
            remove_policy_edit(Rule, "night"),
            "there is no rule \"night\"",
        ),
        (
            set_key_edit("global.dry_rum", ""),
            "there is no key \"global.dry_rum\"",
        ),
        (
            set_key_edit("global.dry_rum", "true"),
            "the new rules would have mistakes\nline 6, column 1: global.dry_rum: unknown key; \
            did you mean dry_run?",
        ),
        (
            set_key_edit("globl.dry_run", "true"),
            "there is no key \"globl.dry_run\"; did you mean global.dry_run?",
        ),
        (set_key_edit("", "1"), "there is no key \"\""),
        (set_key_edit("a.b.c.d", "1"), "there is no key \"a.b.c.d\""),
        (
            GuardEdit::Replace("global = 1".into()),
            "the new rules would have mistakes\nline 1, column 10: global: 1 is not a table",
        ),
    ] {
        assert_eq!(refusal(BEFORE, &change), expected, "{change:?}");
    }
    assert_eq!(
        refusal("[global]\nenabeld = true\n", &GuardEdit::ToggleDryRun),
        "the current rules have mistakes\nline 2, column 1: global.enabeld: unknown key; did you \
        mean enabled?"
    );
    // A new text can replace rules with mistakes.
    assert_eq!(
        apply("enabeld =", &GuardEdit::Replace(BEFORE.into())),
        BEFORE
    );
}
