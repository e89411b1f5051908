//! Files and edits of the rogue rules, without a daemon.

use super::*;
use crate::store::{Retention, Store};
use gpukill_proto::rogue::AllowKind;
use gpukill_proto::units::Bytes;
use std::path::Path;
use std::time::Duration;

/// A store with these rules in its file, or without a file.
fn rule_store(directory: &Path, text: Option<&str>) -> RogueRuleStore {
    let path = directory.join("rogue.toml");
    if let Some(text) = text {
        std::fs::write(&path, text).unwrap();
    }
    let store = Store::start(directory.to_owned(), "boot".into(), Retention::HOUR, None).unwrap();
    RogueRuleStore::start(path, None, store)
}

fn apply_edit(
    rules: &RogueRuleStore,
    asked: &RogueEdit,
    is_dry_run: bool,
) -> Result<EditReport, Refusal> {
    // The store opens meanwhile.
    for _ in 0..500 {
        match rules.edit(0, asked, None, is_dry_run) {
            Err(Refusal::Unavailable(_)) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    panic!("the store does not open");
}

fn in_force(rules: &RogueRuleStore) -> RogueRulesInForce {
    rules.subscribe().borrow().clone()
}

fn allow(what: &str) -> RogueEdit {
    RogueEdit::Allow(AllowKind::Process, what.into())
}

#[test]
fn first_edit_creates_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let rules = rule_store(directory.path(), None);
    let built_in = in_force(&rules);
    assert_eq!(
        (&*built_in.rules, built_in.revision),
        (&RogueRules::default(), None)
    );
    let planned = apply_edit(&rules, &allow("hashcat"), true).unwrap();
    assert!(!rules.path().exists());
    assert_eq!(planned.before, None);
    assert!(
        planned
            .difference
            .contains("+process_whitelist = [\"hashcat\"]\n")
    );
    let woken = rules.subscribe();
    let made = apply_edit(&rules, &allow("hashcat"), false).unwrap();
    assert!(woken.has_changed().unwrap());
    let now = in_force(&rules);
    assert_eq!(
        (now.rules.allowed.len(), now.revision),
        (1, Some(made.after))
    );
    assert_eq!(std::fs::read_to_string(rules.path()).unwrap(), &*now.text);
    // The file has it already: nothing is written.
    let again = apply_edit(&rules, &allow("hashcat"), false);
    let why = "process \"hashcat\" is allowed already".to_owned();
    assert_eq!(again, Err(Refusal::Invalid(why)));
    assert_eq!((rules.is_changed(), rules.fault()), (false, None));
}

#[test]
fn mistakes_keep_the_previous_rules() {
    let directory = tempfile::tempdir().unwrap();
    let rules = rule_store(
        directory.path(),
        Some("[detection]\nmax_memory_usage_gb = 20\n"),
    );
    let file = rules.path().display().to_string();
    std::fs::write(rules.path(), "[detection]\nmax = 20\nsecret = 'x'\n").unwrap();
    assert!(rules.is_changed());
    rules.reload();
    let held = in_force(&rules);
    assert_eq!(held.rules.detection.max_memory, Some(Bytes(20 << 30)));
    let mistakes: Vec<String> = held.mistakes.iter().map(ToString::to_string).collect();
    let expected = [
        "line 2: unknown key detection.max",
        "line 3: unknown key detection.secret",
    ];
    assert_eq!(mistakes, expected);
    let fault = format!(
        "{file}: a mistake in line 2, and 1 more: the previous rules stay in force; see gpukillctl \
         rogue check {file}"
    );
    assert_eq!(rules.fault(), Some(fault));
    assert!(!rules.is_changed());
    // A text that cannot be parsed cannot be edited, but can be replaced.
    let refused = apply_edit(&rules, &allow("hashcat"), false);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    let whole = RogueEdit::Replace("[patterns]\nuser_whitelist = ['bob']\n".into());
    apply_edit(&rules, &whole, false).unwrap();
    assert_eq!(
        (rules.fault(), in_force(&rules).rules.allowed.len()),
        (None, 1)
    );
}

#[test]
fn mistakes_at_start_leave_built_in_rules() {
    let directory = tempfile::tempdir().unwrap();
    let rules = rule_store(directory.path(), Some("max = 1\n"));
    let held = in_force(&rules);
    assert_eq!(
        (&*held.rules, held.revision),
        (&RogueRules::default(), None)
    );
    let file = rules.path().display();
    let fault = format!(
        "{file}: a mistake in line 1: the built-in rules apply; see gpukillctl rogue check {file}"
    );
    assert_eq!(rules.fault(), Some(fault));
}

#[test]
fn edit_reports_lints() {
    let directory = tempfile::tempdir().unwrap();
    let rules = rule_store(directory.path(), None);
    let planned = apply_edit(&rules, &allow("python3"), true).unwrap();
    let expected = "patterns.process_whitelist: \"python3\" hides every process of this name \
         without near-proof: name its executable (executable_whitelist), or \"python3@USER\"";
    assert_eq!(planned.warnings, [expected]);
}
