//! Files and edits of the rules on rogues, without a daemon around them.

use super::*;
use crate::audit::{Keep, Store};
use gpukill_proto::rogue::AllowBy;
use gpukill_proto::units::Bytes;
use std::path::Path;
use std::time::Duration;

/// A keeper of the rules that are written here, if any are.
fn keeper(directory: &Path, text: Option<&str>) -> Keeper {
    let path = directory.join("rogue.toml");
    if let Some(text) = text {
        std::fs::write(&path, text).unwrap();
    }
    let store = Store::start(directory.to_owned(), "boot".into(), Keep::HOUR, None).unwrap();
    Keeper::start(path, store)
}

fn edited(keeper: &Keeper, asked: &RogueEdit, is_dry_run: bool) -> Result<EditReport, Refusal> {
    // The store opens meanwhile.
    for _ in 0..500 {
        match keeper.edit(0, asked, None, is_dry_run) {
            Err(Refusal::Unavailable(_)) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    panic!("the store does not open");
}

fn in_force(keeper: &Keeper) -> InForce {
    keeper.subscribe().borrow().clone()
}

fn allow(what: &str) -> RogueEdit {
    RogueEdit::Allow(AllowBy::Process, what.into())
}

#[test]
fn without_a_file_the_built_in_rules_hold_and_an_edit_makes_it() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path(), None);
    let built_in = in_force(&keeper);
    assert_eq!(
        (&*built_in.rules, built_in.revision),
        (&Rules::default(), None)
    );
    let planned = edited(&keeper, &allow("hashcat"), true).unwrap();
    assert!(!keeper.path().exists());
    assert_eq!(planned.before, None);
    assert!(
        planned
            .difference
            .contains("+process_whitelist = [\"hashcat\"]\n")
    );
    let woken = keeper.subscribe();
    let made = edited(&keeper, &allow("hashcat"), false).unwrap();
    assert!(woken.has_changed().unwrap());
    let now = in_force(&keeper);
    assert_eq!(
        (now.rules.allowed.len(), now.revision),
        (1, Some(made.after))
    );
    assert_eq!(std::fs::read_to_string(keeper.path()).unwrap(), &*now.text);
    // It is there already: nothing is written.
    let again = edited(&keeper, &allow("hashcat"), false);
    let why = "process \"hashcat\" is allowed already".to_owned();
    assert_eq!(again, Err(Refusal::Invalid(why)));
    assert_eq!((keeper.is_changed(), keeper.fault()), (false, None));
}

#[test]
fn a_file_with_mistakes_keeps_the_old_rules_and_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(
        directory.path(),
        Some("[detection]\nmax_memory_usage_gb = 20\n"),
    );
    let file = keeper.path().display().to_string();
    std::fs::write(keeper.path(), "[detection]\nmax = 20\nsecret = 'x'\n").unwrap();
    assert!(keeper.is_changed());
    keeper.reload();
    let held = in_force(&keeper);
    assert_eq!(held.rules.detection.max_memory, Some(Bytes(20 << 30)));
    let told: Vec<String> = held.mistakes.iter().map(ToString::to_string).collect();
    let expected = [
        "line 2: unknown key detection.max",
        "line 3: unknown key detection.secret",
    ];
    assert_eq!(told, expected);
    let fault = format!(
        "{file}: a mistake in line 2, and 1 more: the rules of before hold; see gpukillctl rogue \
         check {file}"
    );
    assert_eq!(keeper.fault(), Some(fault));
    assert!(!keeper.is_changed());
    // What is not understood is not edited, and may be replaced.
    let refused = edited(&keeper, &allow("hashcat"), false);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    let whole = RogueEdit::Replace("[patterns]\nuser_whitelist = ['bob']\n".into());
    edited(&keeper, &whole, false).unwrap();
    assert_eq!(
        (keeper.fault(), in_force(&keeper).rules.allowed.len()),
        (None, 1)
    );
}

#[test]
fn a_file_that_is_wrong_at_the_start_leaves_the_built_in_rules() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path(), Some("max = 1\n"));
    let held = in_force(&keeper);
    assert_eq!((&*held.rules, held.revision), (&Rules::default(), None));
    let file = keeper.path().display();
    let fault = format!(
        "{file}: a mistake in line 1: the built-in rules hold; see gpukillctl rogue check {file}"
    );
    assert_eq!(keeper.fault(), Some(fault));
}

#[test]
fn whoever_edits_is_told_what_is_hardly_meant() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path(), None);
    let planned = edited(&keeper, &allow("python3"), true).unwrap();
    let expected = "patterns.process_whitelist: \"python3\" hides the looks of whatever python3 \
        runs: name its executable (executable_whitelist), or \"python3@USER\"";
    assert_eq!(planned.warnings, [expected]);
}
