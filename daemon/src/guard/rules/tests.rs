//! Files and edits of rules, without a daemon.

use super::*;
use crate::rules_file::file::Durability;
use crate::rules_file::{parse, text_revision};
use crate::store::{Retention, Store};
use gpukill_policy::guard::rules::EnforcementMode;
use gpukill_proto::guard::{
    EditReport, Evidence, GuardAction, Person, RuleKind, RuleName, RuleSource, ViolationSubject,
};
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

#[test]
fn missing_file_means_no_limits() {
    let rules = parse::<GuardRulesKind>(None).unwrap();
    assert_eq!(rules.revision, None);
    assert_eq!(rules.rules().policy_count(), 0);
    assert_eq!(rules.rules().mode, GuardMode::DryRun);
}

#[test]
fn enforcing_rules_have_a_dry_run() {
    let text = "[global]\nenabled = true\ndry_run = false\n";
    let rules = parse::<GuardRulesKind>(Some(text.into())).unwrap();
    assert_eq!(rules.rules().mode, GuardMode::Soft);
    let dry_run = rules.rules.dry_run.rules();
    assert_eq!(
        (dry_run.mode, dry_run.armed_mode),
        (GuardMode::DryRun, EnforcementMode::Soft)
    );
    assert_eq!(rules.revision, Some(text_revision(text)));
    assert_ne!(
        text_revision(text),
        text_revision("[global]\nenabled = false\n")
    );
}

#[test]
fn reports_all_mistakes() {
    let text = "[global]\nenabeld = true\ndry_run = 3\n";
    let mistakes = parse::<GuardRulesKind>(Some(text.into())).unwrap_err();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}

/// A store with these rules in its file.
fn rule_store(directory: &Path, text: &str) -> GuardRuleStore {
    let path = directory.join("guard.toml");
    std::fs::write(&path, text).unwrap();
    let store = Store::start(directory.to_owned(), "boot".into(), Retention::HOUR, None).unwrap();
    GuardRuleStore::start(path, None, store)
}

fn apply_edit(rules: &GuardRuleStore, asked: &GuardEdit, is_dry_run: bool) -> EditReport {
    apply_edit_with_open(&[], rules, asked, is_dry_run)
}

/// Edits while these violations are open.
fn apply_edit_with_open(
    open: &[OpenViolation],
    rules: &GuardRuleStore,
    asked: &GuardEdit,
    is_dry_run: bool,
) -> EditReport {
    // The store opens meanwhile.
    for _ in 0..500 {
        match rules.edit(0, asked, None, is_dry_run, open) {
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
fn edit_reports_pending_hand_edits() {
    let directory = tempfile::tempdir().unwrap();
    let rules = rule_store(
        directory.path(),
        "[user_policies.alice]\nmemory_limit_gb = 8\n",
    );
    assert!(!rules.is_changed());
    let by_hand = "[user_policies.alice]\nmemory_limit_gb = 16\n";
    std::fs::write(rules.path(), by_hand).unwrap();
    assert!(rules.is_changed());
    let file = rules.path().display().to_string();
    let difference = format!(
        "--- {file} (in force)\n+++ {file}\n@@ -1,2 +1,5 @@\n [user_policies.alice]\n\
         -memory_limit_gb = 8\n+memory_limit_gb = 16\n+\n+[user_policies.bob]\n\
         +memory_limit_gb = 4\n"
    );
    let warning =
        format!("{file} has changes that are not loaded yet: they come into force with this edit");
    let planned = apply_edit(&rules, &limit("bob", "4"), true);
    assert_eq!(planned.difference, difference);
    assert_eq!(planned.warnings, [warning.as_str()]);
    assert_eq!(planned.before, Some(text_revision(by_hand)));
    let made = apply_edit(&rules, &limit("bob", "4"), false);
    assert_eq!(made, planned);
    assert_eq!(rules.subscribe().borrow().revision, Some(made.after));
    assert!(!rules.is_changed());
    // Once the hand edit is in force, it is no longer reported.
    let next = apply_edit(&rules, &limit("bob", "5"), true);
    assert_eq!(next.warnings, Vec::<String>::new());
    assert!(
        next.difference
            .starts_with(&format!("--- {file}\n+++ {file}\n"))
    );
}

#[test]
fn edit_equal_to_the_hand_edit_loads_it() {
    let directory = tempfile::tempdir().unwrap();
    let rules = rule_store(directory.path(), "");
    let by_hand = "[user_policies.alice]\nmemory_limit_gb = 16\n";
    std::fs::write(rules.path(), by_hand).unwrap();
    let made = apply_edit(&rules, &limit("alice", "16"), false);
    assert_eq!(made.before.as_ref(), Some(&made.after));
    assert!(
        made.difference
            .ends_with("+[user_policies.alice]\n+memory_limit_gb = 16\n")
    );
    assert_eq!(&*rules.subscribe().borrow().text, by_hand);
    // An edit that replaces everything says so.
    std::fs::write(rules.path(), "[global]\nenabled = false\n").unwrap();
    let replaced = apply_edit(&rules, &GuardEdit::Replace(by_hand.into()), false);
    let file = rules.path().display();
    assert_eq!(
        replaced.warnings,
        [format!(
            "{file} has changes that are not loaded yet: these rules replace them too"
        )]
    );
    assert_eq!(replaced.difference, "");
    assert_eq!(std::fs::read_to_string(rules.path()).unwrap(), by_hand);
}

/// A violation of the policy for this user.
fn open_violation(name: &str) -> OpenViolation {
    OpenViolation {
        rule: RuleName {
            source: RuleSource::User(name.into()),
            kind: RuleKind::Memory,
        },
        subject: ViolationSubject::Person(Person {
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
        unfinished_end: None,
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            runs: Vec::new(),
            count: 1,
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

#[test]
fn edit_reports_restarted_violations() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[user_policies.alice]\nmemory_limit_gb = 8\n\
        [user_policies.bob]\nmemory_limit_gb = 8\n";
    let rules = rule_store(directory.path(), text);
    let open = [open_violation("alice"), open_violation("bob")];
    let warnings = |asked: &GuardEdit| apply_edit_with_open(&open, &rules, asked, true).warnings;
    let grace = |grace: &str| GuardEdit::SetKey {
        path: "enforcement.grace_period_seconds".into(),
        value: grace.into(),
    };
    let rest = "if the new rules are still broken";
    let one = format!("1 violation starts again {rest}: its grace period starts again");
    let both = format!("2 violations start again {rest}: their grace periods start again");
    assert_eq!(warnings(&limit("alice", "9")), [one]);
    assert_eq!(warnings(&grace("60")), [both]);
    assert_eq!(warnings(&limit("carol", "9")), Vec::<String>::new());
    // The file already says so.
    assert_eq!(warnings(&grace("300")).len(), 0);
}

#[test]
fn edit_warns_if_power_loss_may_undo_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut rules = rule_store(directory.path(), "");
    rules.replace = |path, text| {
        std::fs::write(path, text)?;
        Ok(Durability::NotSynced(std::io::Error::other("no room")))
    };
    let made = apply_edit(&rules, &limit("alice", "16"), false);
    let file = rules.path().display();
    assert_eq!(
        made.warnings,
        [format!(
            "{file} is changed and in force, but not known to be on the disk, and may not survive a \
             power loss: no room"
        )]
    );
    assert_eq!(rules.subscribe().borrow().revision, Some(made.after));
    assert!(!rules.is_changed());
}

#[test]
fn broken_file_counts_as_changed_only_if_it_changes_again() {
    let directory = tempfile::tempdir().unwrap();
    let right = "[global]\nenabled = true\n";
    let rules = rule_store(directory.path(), right);
    std::fs::write(rules.path(), "[global]\nenabeld = true\n").unwrap();
    assert!(rules.is_changed());
    rules.reload();
    assert_eq!(rules.subscribe().borrow().mistakes.len(), 1);
    assert!(!rules.is_changed());
    let refused = rules.edit(0, &limit("bob", "4"), None, true, &[]);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    std::fs::write(rules.path(), right).unwrap();
    assert!(rules.is_changed());
    std::fs::remove_file(rules.path()).unwrap();
    assert!(rules.is_changed());
}

#[test]
fn edit_warns_only_of_new_lints() {
    let dir = tempfile::tempdir().unwrap();
    let rules = rule_store(
        dir.path(),
        "[user_policies.alice]\nutilization_limit_pct = 100\n",
    );
    let warnings = |asked: &GuardEdit| apply_edit(&rules, asked, true).warnings;
    // The lint about alice is not new, although its line moves.
    assert_eq!(warnings(&limit("aaron", "8")), Vec::<String>::new());
    let new = GuardEdit::SetPolicy {
        kind: gpukill_proto::guard::edit::PolicyKind::User,
        name: "bob".into(),
        fields: vec![("utilization_limit_pct".into(), "100".into())],
    };
    let new = warnings(&new);
    let expected = "user_policies.bob.utilization_limit_pct: utilization never exceeds 100, so \
                    this never matches";
    assert!(new.len() == 1 && new[0].ends_with(expected), "{new:?}");
}
