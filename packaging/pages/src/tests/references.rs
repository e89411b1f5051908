//! The pages of configuration files.

use super::page_text;
use crate::reference::{Line, line};
use gpukilld::config::{ENVIRONMENT_PREFIX, KEYS};
use std::collections::BTreeMap;

#[test]
fn line_kinds_are_recognised() {
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

/// Counts each word.
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
fn page_contains_the_whole_commented_file() {
    for (path, file) in [
        ("gpukilld.toml", gpukilld::config::print_default()),
        (
            "gpukill-guard.toml",
            gpukill_policy::guard::rules::parse::print_reference(),
        ),
        (
            "gpukill-rogue.toml",
            gpukill_policy::rogue::read::print_defaults(),
        ),
        (
            "gpukill-gateway.toml",
            gpukill_proto::settings::print_defaults(gpukill_gateway::settings::KEYS),
        ),
    ] {
        let page = words(&page_text(&format!("man/man5/{path}.5")));
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
fn every_setting_is_below_its_section() {
    let page = page_text("man/man5/gpukilld.toml.5");
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
        // The page states the general rule and names only one variable.
        let variable = format!("{ENVIRONMENT_PREFIX}{}_{}", key.section, key.name).to_uppercase();
        assert_eq!(key.variable, variable);
    }
    assert!(page.contains("GPUKILLD_DAEMON_SOCKET"));
}

#[test]
fn command_page_names_its_rules_file() {
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
