//! Whether names in the rules match the owner of a process, beyond its own claims: a
//! container label or container name is text that the person who started it wrote, and
//! makes that person no user. An owner with an unknown name matches no name.

use super::super::sample::ProcessFacts;
use super::policy_match::any;
use crate::select::{names_user, user_number};

/// Why it is unknown whether a rule that names users applies.
pub(crate) const OWNER_NAME_UNKNOWN: &str = "the name of its owner is not known";

/// Whether one of these names is the owner's; `None` if that is unknown.
pub(super) fn names_owner(typed: &[impl AsRef<str>], facts: &ProcessFacts) -> Option<bool> {
    if typed.is_empty() {
        return Some(false);
    }
    let owner = facts.owner.as_ref()?;
    let Some(uid) = owner.uid else {
        return Some(false);
    };
    let name = Some(owner.name.as_str());
    any(typed
        .iter()
        .map(|typed| matches_user(typed.as_ref(), facts, uid, name)))
}

/// Whether one of these names is an owner that the process only claims. Such a claim can
/// deny something, and grants nothing.
pub(super) fn names_claimed_owner(typed: &[impl AsRef<str>], facts: &ProcessFacts) -> bool {
    let owner = facts.owner.as_ref().filter(|owner| owner.uid.is_none());
    owner.is_some_and(|owner| {
        let mut typed = typed.iter();
        typed.any(|typed| names_user(typed.as_ref(), None, Some(&owner.name)))
    })
}

/// Whether one of these names is the user that the process runs as; `None` if that is
/// unknown.
pub(super) fn names_process_user(typed: &[String], facts: &ProcessFacts) -> Option<bool> {
    if typed.is_empty() {
        return Some(false);
    }
    let (name, uid) = facts.user.as_ref()?;
    any(typed
        .iter()
        .map(|typed| matches_user(typed, facts, *uid, name.as_deref())))
}

fn matches_user(typed: &str, facts: &ProcessFacts, uid: u32, name: Option<&str>) -> Option<bool> {
    match (user_number(typed), facts.user_name(uid, name)) {
        (Some(number), _) => Some(number == uid),
        (None, Some(name)) => Some(name == Some(typed)),
        (None, None) => None,
    }
}
