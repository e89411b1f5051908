//! Describes the users who could end a process that the caller may not end.

use super::{ProcessInfo, ProcessTable};
use crate::access::{Principal, Roles, principals_allowed_to_end};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// The names of users, as far as their processes show them.
pub(super) fn user_names(table: &ProcessTable) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for process in table.values() {
        // In a container or namespace the owner is not the user who runs the process.
        let is_plain = matches!(process.container, Reading::Value(None))
            && matches!(process.namespace_owner, Reading::Value(None));
        if let (true, Some(uid), Some(name)) =
            (is_plain, process.lineage.uid, process.owner.last_known())
        {
            names.entry(uid).or_insert_with(|| name.clone());
        }
    }
    names
}

/// Returns the users to ask, as in "ask alice, or someone in group gpukill-operators".
/// Root is named where no other user could end the process.
pub(super) fn contact_text(
    process: &ProcessInfo,
    roles: &Roles,
    operators: &str,
    names: &BTreeMap<u32, String>,
) -> String {
    let uids = process.uids.known().copied();
    let namespace_creator = process.namespace_owner.known().copied().flatten();
    let people = principals_allowed_to_end(uids, namespace_creator, roles);
    // A uid without a name belongs to a container, not to a person who can be asked.
    let called = people.iter().filter_map(|person| match person {
        Principal::User(0) if includes_group(&people) => None,
        Principal::User(0) => Some("root".to_owned()),
        Principal::User(uid) => names.get(uid).cloned(),
        Principal::Group(_) => Some(format!("someone in group {operators}")),
    });
    let called: Vec<String> = called.collect();
    match called.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{}, or {last}", before.join(", ")),
        None => "root".to_owned(),
    }
}

fn includes_group(people: &[Principal]) -> bool {
    let is_group = |person: &Principal| matches!(person, Principal::Group(_));
    people.iter().any(is_group)
}
