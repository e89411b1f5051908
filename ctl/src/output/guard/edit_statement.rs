//! What holds after an edit of the rules, in one sentence: `bob: at most 8 GiB; dry run, nothing
//! will be ended before gpukillctl guard soft`.

use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::rules::description::{PolicyDescription, describe_policies};
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{GuardMode, GuardReport};

/// The sentence for an edit from the rules `held` to the rules `new`; `before` is the guard
/// before the edit.
pub(crate) fn edit_statement(
    asked: &GuardEdit,
    held: &RuleSet,
    new: &RuleSet,
    before: &GuardReport,
) -> String {
    let policies = describe_policies(new);
    let changed = match asked {
        GuardEdit::SetPolicy { kind, name, .. } => policies
            .iter()
            .find(|it| it.kind == Some(*kind) && it.name == *name),
        GuardEdit::SetKey { .. } => {
            let old = describe_policies(held);
            let is_old = |it: &&PolicyDescription| old.iter().any(|old| old.text == it.text);
            policies.iter().find(|it| !is_old(it))
        }
        GuardEdit::RemovePolicy { .. }
        | GuardEdit::SetMode(_)
        | GuardEdit::ToggleDryRun
        | GuardEdit::Replace(_) => None,
    };
    let (what, mode) = match changed {
        Some(changed) => (changed.text.clone(), changed.mode),
        None => (unnamed_change(asked, held, &policies), new.mode),
    };
    // Another line is about a new mode, and what is removed is not in force.
    if new.mode != before.mode || matches!(asked, GuardEdit::RemovePolicy { .. }) {
        return what;
    }
    // The guard itself is in dry run, not only this policy.
    let armed = new.armed_mode.mode().name();
    let in_force = format!("dry run, nothing will be ended before gpukillctl guard {armed}");
    let then = match mode {
        GuardMode::Disabled => "the guard is disabled, nothing is evaluated",
        GuardMode::DryRun if new.mode == GuardMode::DryRun => in_force.as_str(),
        GuardMode::DryRun => "dry run, nothing will be ended",
        GuardMode::Soft | GuardMode::Enforce if before.tripped_at.is_some() => {
            "the guard has stopped, nothing will be ended"
        }
        GuardMode::Soft => "in force, soft",
        GuardMode::Enforce => "in force, enforce",
    };
    format!("{what}; {then}")
}

/// A change that is not the change of one policy.
fn unnamed_change(asked: &GuardEdit, held: &RuleSet, new: &[PolicyDescription]) -> String {
    match asked {
        GuardEdit::RemovePolicy { kind, name } => format!("{} {name} is removed", kind.name()),
        GuardEdit::SetKey { path, value } if value.is_empty() => format!("{path} is not set"),
        GuardEdit::Replace(_) => replacement_text(&describe_policies(held), new),
        // Its `Display` is the record's form of the change.
        GuardEdit::SetPolicy { .. }
        | GuardEdit::SetKey { .. }
        | GuardEdit::SetMode(_)
        | GuardEdit::ToggleDryRun => asked.to_string(),
    }
}

/// `6 policies, 2 of them new or changed; 1 is gone`
fn replacement_text(old: &[PolicyDescription], new: &[PolicyDescription]) -> String {
    let count_missing = |from: &[PolicyDescription], all: &[PolicyDescription], same: Same| {
        let is_missing = |it: &&PolicyDescription| !all.iter().any(|other| same(it, other));
        from.iter().filter(is_missing).count()
    };
    let changed = count_missing(new, old, |one, other| one.text == other.text);
    let gone = count_missing(old, new, |one, other| {
        (one.kind, &one.name) == (other.kind, &other.name)
    });
    let mut text = match new.len() {
        0 => "no policies".to_owned(),
        1 => "1 policy".to_owned(),
        several => format!("{several} policies"),
    };
    if changed > 0 {
        text.push_str(&format!(", {changed} new or changed"));
    }
    if gone > 0 {
        text.push_str(&format!(", {gone} removed"));
    }
    text
}

type Same = fn(&PolicyDescription, &PolicyDescription) -> bool;

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{NOW, guard_report};
    use super::*;
    use gpukill_policy::guard::rules::edit::edit;
    use gpukill_policy::guard::rules::parse::parse;
    use gpukill_proto::guard::edit::PolicyKind;

    const HELD: &str = "[global]\ndry_run = false\n[user_policies.alice]\nmemory_limit_gb = 4\n";

    fn statement(held: &str, asked: &GuardEdit, tripped: bool) -> String {
        let new = edit(held, asked).expect("a valid edit");
        let (held, new) = (parse(held).expect("rules"), parse(&new).expect("rules"));
        let before = GuardReport {
            mode: held.mode,
            tripped_at: tripped.then_some(NOW),
            ..guard_report()
        };
        edit_statement(asked, &held, &new, &before)
    }

    #[test]
    fn sentence_states_what_holds() {
        let set = |path: &str, value: &str| GuardEdit::SetKey {
            path: path.into(),
            value: value.into(),
        };
        let bob = |fields: &[(&str, &str)]| GuardEdit::SetPolicy {
            kind: PolicyKind::User,
            name: "bob".into(),
            fields: fields
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        };
        let limit = || bob(&[("memory_limit_gb", "8")]);
        let removal = GuardEdit::RemovePolicy {
            kind: PolicyKind::User,
            name: "alice".into(),
        };
        let replacement = "[global]\ndry_run = false\ndefault_memory_limit_gb = 16\n";
        let (dry, off) = ("", "[global]\nenabled = false\n");
        let cases = [
            (
                dry,
                limit(),
                "bob: at most 8 GiB; dry run, nothing will be ended before gpukillctl guard soft",
            ),
            (
                "[enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n",
                limit(),
                "bob: at most 8 GiB; dry run, nothing will be ended before gpukillctl guard enforce",
            ),
            (HELD, limit(), "bob: at most 8 GiB; in force, soft"),
            (
                HELD,
                bob(&[("memory_limit_gb", "8"), ("mode", "dry-run")]),
                "bob: at most 8 GiB, mode dry-run; dry run, nothing will be ended",
            ),
            (
                off,
                limit(),
                "bob: at most 8 GiB; the guard is disabled, nothing is evaluated",
            ),
            (HELD, removal, "user policy alice is removed"),
            (
                HELD,
                set("default_memory_limit_gb", "16"),
                "by default: at most 16 GiB; in force, soft",
            ),
            (
                HELD,
                set("user_policies.alice.memory_limit_gb", "6"),
                "alice: at most 6 GiB; in force, soft",
            ),
            (
                HELD,
                set("enforcement.max_warnings", "4"),
                "enforcement.max_warnings = 4; in force, soft",
            ),
            (
                HELD,
                GuardEdit::Replace(replacement.into()),
                "1 policy, 1 new or changed, 1 removed; in force, soft",
            ),
            // The mode has a line of its own.
            (
                HELD,
                GuardEdit::Replace(String::new()),
                "no policies, 1 removed",
            ),
        ];
        for (held, asked, expected) in cases {
            assert_eq!(statement(held, &asked, false), expected, "{asked}");
        }
        assert_eq!(
            statement(HELD, &limit(), true),
            "bob: at most 8 GiB; the guard has stopped, nothing will be ended"
        );
    }
}
