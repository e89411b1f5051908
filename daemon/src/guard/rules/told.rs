//! What whoever edits the guard's rules is told besides what whoever edits any is.

use gpukill_policy::guard::rules::Rules;

/// That an edit takes away the last rule.
pub(super) fn limits_nobody(held: &Rules, new: &Rules) -> Option<String> {
    let gone = match held.count() {
        0 => return None,
        1 => "the only rule goes".to_owned(),
        several => format!("all {several} rules go"),
    };
    (new.count() == 0).then(|| format!("{gone}: nobody is limited any more"))
}

/// That so many violations begin anew with an edit.
pub(super) fn anew(count: usize) -> Option<String> {
    let (violations, grace) = match count {
        0 => return None,
        1 => ("1 violation begins".to_owned(), "its grace starts"),
        several => (format!("{several} violations begin"), "their grace starts"),
    };
    Some(format!(
        "{violations} anew, as far as the new rules are broken still: {grace} again"
    ))
}
