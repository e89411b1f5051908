//! Files and edits of rules, without a daemon around them.

use super::*;
use crate::audit::Keep;
use crate::rules_file::file::Kept;
use crate::rules_file::{revision, understood};
use gpukill_policy::guard::rules::Rehearsed;
use gpukill_proto::guard::{
    EditReport, Evidence, GuardAction, Person, RuleKind, RuleName, RuleSource, Subject,
};
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

#[test]
fn without_a_file_the_built_in_defaults_hold_and_limit_nobody() {
    let rules = understood::<OfGuard>(None).unwrap();
    assert_eq!(rules.revision, None);
    assert_eq!(rules.rules().policies(), 0);
    assert_eq!(rules.rules().mode, GuardMode::DryRun);
}

#[test]
fn rules_that_end_somebody_can_be_rehearsed_too() {
    let text = "[global]\nenabled = true\ndry_run = false\n";
    let rules = understood::<OfGuard>(Some(text.into())).unwrap();
    assert_eq!(rules.rules().mode, GuardMode::Soft);
    let rehearsed = rules.rules.rehearsing.rules();
    assert_eq!(
        (rehearsed.mode, rehearsed.rehearsed),
        (GuardMode::DryRun, Rehearsed::Soft)
    );
    assert_eq!(rules.revision, Some(revision(text)));
    assert_ne!(revision(text), revision("[global]\nenabled = false\n"));
}

#[test]
fn every_mistake_is_told() {
    let text = "[global]\nenabeld = true\ndry_run = 3\n";
    let mistakes = understood::<OfGuard>(Some(text.into())).unwrap_err();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}

/// A keeper of the rules that are written here.
fn keeper(directory: &Path, text: &str) -> Keeper {
    let path = directory.join("guard.toml");
    std::fs::write(&path, text).unwrap();
    let store = Store::start(directory.to_owned(), "boot".into(), Keep::HOUR, None).unwrap();
    Keeper::start(path, None, store)
}

fn edited(keeper: &Keeper, asked: &GuardEdit, is_dry_run: bool) -> EditReport {
    edited_with(&[], keeper, asked, is_dry_run)
}

/// While these violations go on.
fn edited_with(
    open: &[OpenViolation],
    keeper: &Keeper,
    asked: &GuardEdit,
    is_dry_run: bool,
) -> EditReport {
    // The store opens meanwhile.
    for _ in 0..500 {
        match keeper.edit(0, asked, None, is_dry_run, open) {
            Err(Refusal::Unavailable(_)) => std::thread::sleep(Duration::from_millis(10)),
            other => return other.unwrap().report,
        }
    }
    panic!("the store does not open");
}

fn limit(name: &str, memory: &str) -> GuardEdit {
    GuardEdit::SetPolicy {
        kind: gpukill_proto::guard::edit::PolicyKind::User,
        name: name.into(),
        fields: vec![("memory_limit_gb".into(), memory.into())],
    }
}

#[test]
fn an_edit_tells_of_the_hand_edit_that_comes_into_force_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(
        directory.path(),
        "[user_policies.alice]\nmemory_limit_gb = 8\n",
    );
    assert!(!keeper.is_changed());
    let by_hand = "[user_policies.alice]\nmemory_limit_gb = 16\n";
    std::fs::write(keeper.path(), by_hand).unwrap();
    assert!(keeper.is_changed());
    let file = keeper.path().display().to_string();
    let difference = format!(
        "--- {file} (in force)\n+++ {file}\n@@ -1,2 +1,5 @@\n [user_policies.alice]\n\
         -memory_limit_gb = 8\n+memory_limit_gb = 16\n+\n+[user_policies.bob]\n\
         +memory_limit_gb = 4\n"
    );
    let told =
        format!("{file} has changes that were not read yet: they come into force with this edit");
    let planned = edited(&keeper, &limit("bob", "4"), true);
    assert_eq!(planned.difference, difference);
    assert_eq!(planned.warnings, [told.as_str()]);
    assert_eq!(planned.before, Some(revision(by_hand)));
    let made = edited(&keeper, &limit("bob", "4"), false);
    assert_eq!(made, planned);
    assert_eq!(keeper.subscribe().borrow().revision, Some(made.after));
    assert!(!keeper.is_changed());
    // Once it is in force it is told no more.
    let next = edited(&keeper, &limit("bob", "5"), true);
    assert_eq!(next.warnings, Vec::<String>::new());
    assert!(
        next.difference
            .starts_with(&format!("--- {file}\n+++ {file}\n"))
    );
}

#[test]
fn an_edit_that_says_what_was_written_by_hand_puts_it_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path(), "");
    let by_hand = "[user_policies.alice]\nmemory_limit_gb = 16\n";
    std::fs::write(keeper.path(), by_hand).unwrap();
    let made = edited(&keeper, &limit("alice", "16"), false);
    assert_eq!(made.before.as_ref(), Some(&made.after));
    assert!(
        made.difference
            .ends_with("+[user_policies.alice]\n+memory_limit_gb = 16\n")
    );
    assert_eq!(&*keeper.subscribe().borrow().text, by_hand);
    // And what replaces all of it says so.
    std::fs::write(keeper.path(), "[global]\nenabled = false\n").unwrap();
    let replaced = edited(&keeper, &GuardEdit::Replace(by_hand.into()), false);
    let file = keeper.path().display();
    assert_eq!(
        replaced.warnings,
        [format!(
            "{file} has changes that were not read yet: these rules replace them too"
        )]
    );
    assert_eq!(replaced.difference, "");
    assert_eq!(std::fs::read_to_string(keeper.path()).unwrap(), by_hand);
}

/// A violation of what is said of this user.
fn open(name: &str) -> OpenViolation {
    OpenViolation {
        rule: RuleName {
            source: RuleSource::User(name.into()),
            kind: RuleKind::Memory,
        },
        subject: Subject::Person(Person {
            name: name.into(),
            uid: None,
        }),
        mode: GuardMode::DryRun,
        action: GuardAction::Terminate,
        violated_at: Timestamp(0),
        warned_at: None,
        warnings: 0,
        deadline: None,
        readers: Vec::new(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            runs: Vec::new(),
            count: 1,
            unknown: 0,
            threat: None,
            is_spared_service: false,
        },
        message: None,
    }
}

#[test]
fn an_edit_tells_how_many_violations_begin_anew() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[user_policies.alice]\nmemory_limit_gb = 8\n\
        [user_policies.bob]\nmemory_limit_gb = 8\n";
    let keeper = keeper(directory.path(), text);
    let open = [open("alice"), open("bob")];
    let told = |asked: &GuardEdit| edited_with(&open, &keeper, asked, true).warnings;
    let grace = |grace: &str| GuardEdit::SetKey {
        path: "enforcement.grace_period_seconds".into(),
        value: grace.into(),
    };
    let rest = "as far as the new rules are broken still";
    let one = format!("1 violation begins anew, {rest}: its grace starts again");
    let both = format!("2 violations begin anew, {rest}: their grace starts again");
    assert_eq!(told(&limit("alice", "9")), [one]);
    assert_eq!(told(&grace("60")), [both]);
    assert_eq!(told(&limit("carol", "9")), Vec::<String>::new());
    // It says so already.
    assert_eq!(told(&grace("300")).len(), 0);
}

#[test]
fn an_edit_that_a_power_cut_may_undo_is_made_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut keeper = keeper(directory.path(), "");
    keeper.replace = |path, text| {
        std::fs::write(path, text)?;
        Ok(Kept::WhilePowered(std::io::Error::other("no room")))
    };
    let made = edited(&keeper, &limit("alice", "16"), false);
    let file = keeper.path().display();
    assert_eq!(
        made.warnings,
        [format!(
            "{file} is changed and in force, but not known to be on the disk, and may not \
             survive a power cut: no room"
        )]
    );
    assert_eq!(keeper.subscribe().borrow().revision, Some(made.after));
    assert!(!keeper.is_changed());
}

#[test]
fn a_file_with_mistakes_has_changed_only_when_it_says_something_else_again() {
    let directory = tempfile::tempdir().unwrap();
    let right = "[global]\nenabled = true\n";
    let keeper = keeper(directory.path(), right);
    std::fs::write(keeper.path(), "[global]\nenabeld = true\n").unwrap();
    assert!(keeper.is_changed());
    keeper.reload();
    assert_eq!(keeper.subscribe().borrow().mistakes.len(), 1);
    assert!(!keeper.is_changed());
    let refused = keeper.edit(0, &limit("bob", "4"), None, true, &[]);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    std::fs::write(keeper.path(), right).unwrap();
    assert!(keeper.is_changed());
    std::fs::remove_file(keeper.path()).unwrap();
    assert!(keeper.is_changed());
}
