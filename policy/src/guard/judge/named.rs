//! Whether a process is of somebody whom rules name, beyond what it says of itself: a
//! label of its container, or what that is called, is text that whoever started it
//! wrote, and makes them no user. By a name nobody is known whose name is not.

use super::super::bucket::About;
use super::selected::any;
use crate::select::{is_user, user_number};

/// Why it is not known whether a rule that names users is about somebody.
pub(crate) const UNNAMED: &str = "what its owner is called is not known";

/// Whether one of these names its owner; `None` where that is not known.
pub(super) fn is_owner(typed: &[impl AsRef<str>], about: &About) -> Option<bool> {
    if typed.is_empty() {
        return Some(false);
    }
    let owner = about.owner.as_ref()?;
    let Some(uid) = owner.uid else {
        return Some(false);
    };
    let name = Some(owner.name.as_str());
    any(typed
        .iter()
        .map(|typed| is_named(typed.as_ref(), about, uid, name)))
}

/// Whether one of these names its owner by its own word alone. That may keep it from
/// something, and gives it nothing.
pub(super) fn says_so(typed: &[impl AsRef<str>], about: &About) -> bool {
    let owner = about.owner.as_ref().filter(|owner| owner.uid.is_none());
    owner.is_some_and(|owner| {
        let mut typed = typed.iter();
        typed.any(|typed| is_user(typed.as_ref(), None, Some(&owner.name)))
    })
}

/// Whether one of these names whom it runs as; `None` where that is not known.
pub(super) fn runs_as(typed: &[String], about: &About) -> Option<bool> {
    if typed.is_empty() {
        return Some(false);
    }
    let (name, uid) = about.user.as_ref()?;
    any(typed
        .iter()
        .map(|typed| is_named(typed, about, *uid, name.as_deref())))
}

fn is_named(typed: &str, about: &About, uid: u32, said: Option<&str>) -> Option<bool> {
    match (user_number(typed), about.called(uid, said)) {
        (Some(number), _) => Some(number == uid),
        (None, Some(name)) => Some(name == Some(typed)),
        (None, None) => None,
    }
}
