//! The pages of the files that people write.

use super::said;
use crate::reference::{Line, line};
use gpukilld::config::{KEYS, PREFIX};
use std::collections::BTreeMap;

#[test]
fn a_line_of_a_commented_file_is_what_people_take_it_for() {
    let key = |name, before, after| Line::Key {
        name,
        before,
        after,
    };
    for (text, expected) in [
        ("", Line::Blank),
        ("#", Line::Break),
        ("[global]", Line::Table("[global]")),
        (
            "# [user_policies.alice]",
            Line::Table("[user_policies.alice]"),
        ),
        ("# [[rules]]", Line::Table("[[rules]]")),
        ("# # [enforcement].", Line::Prose("[enforcement].")),
        ("# What is said.", Line::Prose("What is said.")),
        ("enabled = true", key("enabled", "", " = true")),
        ("# priority = 7", key("priority", "# ", " = 7")),
        ("# last_modified =", key("last_modified", "# ", " =")),
        (
            "# # Set soft = false with it.",
            Line::Prose("Set soft = false with it."),
        ),
    ] {
        assert_eq!(line(text), expected, "{text}");
    }
}

/// How often each word is there.
fn words(text: &str) -> BTreeMap<String, usize> {
    let mut words = BTreeMap::new();
    let bare = text
        .replace("\\fB", "")
        .replace("\\fI", "")
        .replace("\\fR", "");
    for word in bare
        .split_whitespace()
        .map(|it| it.trim_matches(['`', '"']))
    {
        *words.entry(word.to_owned()).or_default() += 1;
    }
    words
}

#[test]
fn nothing_of_a_commented_file_is_missing_on_its_page() {
    for (path, file) in [
        ("gpukilld.toml", gpukilld::config::print_default()),
        (
            "gpukill-guard.toml",
            gpukill_policy::guard::read::print_reference(),
        ),
        (
            "gpukill-rogue.toml",
            gpukill_policy::rogue::read::print_defaults(),
        ),
    ] {
        let page = words(&said(&format!("man/man5/{path}.5")));
        let bare: Vec<&str> = file
            .lines()
            .map(|it| it.trim_start_matches(['#', ' ']))
            .collect();
        let file = words(&bare.join("\n"));
        assert!(file.len() > 50, "{path}");
        for (word, times) in file {
            let there = page.get(&word).copied().unwrap_or_default();
            assert!(there >= times, "{path}: {word}: {there} of {times}");
        }
    }
}

#[test]
fn every_setting_of_the_daemon_is_explained_below_its_section() {
    let page = said("man/man5/gpukilld.toml.5");
    for key in KEYS {
        let (_, below) = page
            .split_once(&format!(".SS \"[{}]\"\n", key.section))
            .unwrap();
        let below = below.split(".SS").next().unwrap();
        assert!(
            below.contains(&format!("\\fB{}\\fR =", key.name)),
            "{}",
            key.path()
        );
        // The page says the rule, and no variable but one.
        let variable = format!("{PREFIX}{}_{}", key.section, key.name).to_uppercase();
        assert_eq!(key.variable, variable);
    }
    assert!(page.contains("GPUKILLD_DAEMON_SOCKET"));
}

#[test]
fn the_rules_of_a_command_are_among_its_files() {
    let path = |path: &[&str]| crate::reference::rules_of(path).map(|it| it.path);
    assert_eq!(
        path(&["gpukillctl", "guard", "set"]),
        Some("/etc/gpukill/rules/guard.toml")
    );
    assert_eq!(
        path(&["gpukillctl", "rogue"]),
        Some("/etc/gpukill/rules/rogue.toml")
    );
    assert_eq!(path(&["gpukillctl", "list"]), None);
    assert_eq!(path(&["gpukillctl"]), None);
}
