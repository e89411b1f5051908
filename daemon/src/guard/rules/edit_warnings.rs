//! Warnings for edits that are specific to the rules of the guard.

use gpukill_policy::guard::rules::RuleSet;

/// A warning that an edit removes the last rule.
pub(super) fn no_limits_warning(held: &RuleSet, new: &RuleSet) -> Option<String> {
    let gone = match held.rule_count() {
        0 => return None,
        1 => "the only rule is removed".to_owned(),
        several => format!("all {several} rules are removed"),
    };
    (new.rule_count() == 0).then(|| format!("{gone}: there are no more limits"))
}

/// A warning that this many violations start again after an edit.
pub(super) fn restart_warning(count: usize) -> Option<String> {
    let (violations, grace) = match count {
        0 => return None,
        1 => ("1 violation starts".to_owned(), "its grace period starts"),
        several => (
            format!("{several} violations start"),
            "their grace periods start",
        ),
    };
    Some(format!(
        "{violations} again if the new rules are still broken: {grace} again"
    ))
}
