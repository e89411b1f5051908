//! Which person is behind a process, whatever its user ids.

use super::cgroup::{CGROUP_MAX, user_slice};
use super::namespace::{own_users, user_namespace_makers, user_namespace_owner};
use super::status::Status;
use crate::procfs::file::read_at_most;
use gpukill_policy::access::PersonBehind;
use gpukill_proto::reading::Reading;
use std::path::Path;

/// What the kernel alone says of the person behind the process with this directory; `None` where
/// it has ended.
pub(crate) fn person_behind(directory: &Path) -> Option<PersonBehind> {
    let cgroup = read_at_most(&directory.join("cgroup"), CGROUP_MAX).ok()?;
    let cgroup = String::from_utf8(cgroup).ok()?;
    let namespace_owner = user_namespace_owner(directory, own_users().as_deref());
    Some(PersonBehind {
        slice: user_slice(&cgroup),
        superior: None,
        namespace_owner: namespace_owner.known().copied().flatten(),
    })
}

/// The user that the process with this directory belongs to, which is the maker of its user
/// namespace or else its real user, and the user in whose slice it is.
pub(crate) fn account(directory: &Path) -> Option<(u32, Option<u32>)> {
    let user = Status::read(directory).uids.known()?.real;
    let user = match user_namespace_makers(directory, own_users().as_deref()) {
        Reading::Value(makers) => makers.person.unwrap_or(user),
        Reading::Unsupported => user,
        Reading::Stale(..) | Reading::Failed(_) | Reading::Withheld => return None,
    };
    let cgroup = read_at_most(&directory.join("cgroup"), CGROUP_MAX).ok();
    let cgroup = cgroup.and_then(|text| String::from_utf8(text).ok());
    Some((user, cgroup.as_deref().and_then(user_slice)))
}
