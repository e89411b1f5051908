//! What whoever edits rules is told besides the difference.

use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::edit::{GuardEdit, Mistake};

/// What an edit does to what was written by hand and is not in force yet.
pub(super) fn unread(
    name: &str,
    (held, written, new): (&str, &str, &str),
    asked: &GuardEdit,
) -> Option<String> {
    if held == written {
        return None;
    }
    let becomes = match asked {
        GuardEdit::Replace(_) if written != new => "these rules replace them too",
        GuardEdit::Replace(_)
        | GuardEdit::SetPolicy { .. }
        | GuardEdit::RemovePolicy { .. }
        | GuardEdit::SetKey { .. }
        | GuardEdit::SetMode(_)
        | GuardEdit::ToggleDryRun => "they come into force with this edit",
    };
    Some(format!(
        "{name} has changes that were not read yet: {becomes}"
    ))
}

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

/// That an edit was made, and a power cut may undo it.
pub(super) fn unsafe_on_disk(name: &str, error: &std::io::Error) -> String {
    format!(
        "{name} is changed and in force, but not known to be on the disk, and may not survive a \
         power cut: {error}"
    )
}

/// Every mistake on a line.
pub(super) fn told(mistakes: &[Mistake]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}
