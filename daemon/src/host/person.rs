//! Finds the person behind a process, whatever its uids.

use super::cgroup::{CGROUP_MAX, user_slice};
use super::namespace::{own_user_namespace, user_namespace_creators, user_namespace_owner};
use super::status::StatusFile;
use crate::procfs::file::read_at_most;
use gpukill_policy::access::PersonEvidence;
use gpukill_proto::reading::Reading;
use std::path::Path;

/// The person behind the process with this directory, by kernel data only; `None` where it has
/// ended.
pub(crate) fn person_behind(directory: &Path) -> Option<PersonEvidence> {
    let cgroup = read_at_most(&directory.join("cgroup"), CGROUP_MAX).ok()?;
    let cgroup = String::from_utf8(cgroup).ok()?;
    let namespace_owner = user_namespace_owner(directory, own_user_namespace().as_deref());
    Some(PersonEvidence {
        slice: user_slice(&cgroup),
        subordinate_owner: None,
        namespace_owner: namespace_owner.known().copied().flatten(),
    })
}

/// The user of the process with this directory, which is the creator of its user namespace or else
/// its real user, and the user of its user slice.
pub(crate) fn user_and_slice(directory: &Path) -> Option<(u32, Option<u32>)> {
    let user = StatusFile::read(directory).uids.known()?.real;
    let user = match user_namespace_creators(directory, own_user_namespace().as_deref()) {
        Reading::Value(makers) => makers.person.unwrap_or(user),
        Reading::Unsupported => user,
        Reading::Stale(..) | Reading::Failed(_) | Reading::Withheld => return None,
    };
    let cgroup = read_at_most(&directory.join("cgroup"), CGROUP_MAX).ok();
    let cgroup = cgroup.and_then(|text| String::from_utf8(text).ok());
    Some((user, cgroup.as_deref().and_then(user_slice)))
}
