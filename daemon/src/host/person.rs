//! Which person is behind a process, whatever its user ids.

use super::cgroup::{CGROUP_MAX, user_slice};
use super::namespace::{own_users, user_namespace_owner};
use crate::procfs::file::read_at_most;
use gpukill_policy::access::PersonBehind;
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
