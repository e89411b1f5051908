//! What whoever edits rules is told besides the difference, whatever the rules are.

/// How much of a text an edit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    All,
    Part,
}

/// What an edit does to what was written by hand and is not in force yet.
pub(super) fn unread(
    name: &str,
    (held, written, new): (&str, &str, &str),
    says: Says,
) -> Option<String> {
    if held == written {
        return None;
    }
    let becomes = match says {
        Says::All if written != new => "these rules replace them too",
        Says::All | Says::Part => "they come into force with this edit",
    };
    Some(format!(
        "{name} has changes that were not read yet: {becomes}"
    ))
}

/// That an edit was made, and a power cut may undo it.
pub(super) fn unsafe_on_disk(name: &str, error: &std::io::Error) -> String {
    format!(
        "{name} is changed and in force, but not known to be on the disk, and may not survive a \
         power cut: {error}"
    )
}
