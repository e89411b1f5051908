//! Who could end what this caller may not, in words.

use super::{Candidate, Crowd};
use crate::access::{Person, Roles, who_may_end};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// What users are called, as far as their processes tell.
pub(super) fn names(crowd: &Crowd) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for process in crowd.values() {
        // In a container, or a namespace, its owner is not who runs it.
        let is_plain = matches!(process.container, Reading::Value(None))
            && matches!(process.namespace_owner, Reading::Value(None));
        if let (true, Some(uid), Some(name)) =
            (is_plain, process.kin.uid, process.owner.last_known())
        {
            names.insert(uid, name.clone());
        }
    }
    names
}

/// Whom to ask, as in "ask alice, or someone in group gpukill-operators". Root is
/// named where nobody else could.
pub(super) fn whom_to_ask(
    process: &Candidate,
    roles: &Roles,
    operators: &str,
    names: &BTreeMap<u32, String>,
) -> String {
    let uids = process.uids.known().copied();
    let maker = process.namespace_owner.known().copied().flatten();
    let people = who_may_end(uids, maker, roles);
    // Who has a number only is a container's, and nobody to be asked.
    let called = people.iter().filter_map(|person| match person {
        Person::User(0) if has_group(&people) => None,
        Person::User(0) => Some("root".to_owned()),
        Person::User(uid) => names.get(uid).cloned(),
        Person::Group(_) => Some(format!("someone in group {operators}")),
    });
    let called: Vec<String> = called.collect();
    match called.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{}, or {last}", before.join(", ")),
        None => "root".to_owned(),
    }
}

fn has_group(people: &[Person]) -> bool {
    let is_group = |person: &Person| matches!(person, Person::Group(_));
    people.iter().any(is_group)
}
