//! Warnings for edits that apply to all kinds of rules.

/// How much of the rules an edit replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditExtent {
    Everything,
    Part,
}

/// A warning about a hand edit that is not in force yet.
pub(super) fn unloaded_changes_warning(
    name: &str,
    (held, written, new): (&str, &str, &str),
    says: EditExtent,
) -> Option<String> {
    if held == written {
        return None;
    }
    let becomes = match says {
        EditExtent::Everything if written != new => "these rules replace them too",
        EditExtent::Everything | EditExtent::Part => "they come into force with this edit",
    };
    Some(format!(
        "{name} has changes that are not loaded yet: {becomes}"
    ))
}

/// A warning that a power loss may undo the edit.
pub(super) fn durability_warning(name: &str, error: &std::io::Error) -> String {
    format!(
        "{name} is changed and in force, but not known to be on the disk, and may not survive a \
         power loss: {error}"
    )
}
