//! What the system knows of processes and people. Reads; what it means is for
//! `policy` to say.
//!
//! In reading order: what is read at once (`status` to `namespace`), what may hang
//! and is asked for (`asked` to `containers`), and who a pid is, put together from
//! both (`family` to `crowd`); who uses its job over TCP (`connections`), what it leaves for
//! verdicts on rogues (`traces`), and the hash of what it executes (`hashes`).

mod status;

mod cpu;

mod cgroup;

pub(crate) mod person;

pub(crate) mod namespace;

mod asked;

pub(crate) mod users;

pub(crate) mod commands;

pub(crate) mod accounts;

pub(crate) mod containers;

mod family;

pub(crate) mod fuse;

mod login_defs;

pub(crate) mod memory;

pub(crate) mod condition;

pub(crate) mod identity;

pub(crate) mod process;

pub(crate) mod crowd;

pub(crate) mod connections;

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "verdicts on rogues will ask for them")
)]
pub(crate) mod traces;

pub(crate) mod hashes;

mod seat;

#[cfg(test)]
mod sleeper;

pub(crate) mod untrusted;

use gpukill_proto::reading::Reading;
use status::Status;
use std::path::Path;

/// The person that the process with this directory belongs to: who made its user
/// namespace, or else its real user. `None` where that is not known.
pub(crate) fn person_of(directory: &Path) -> Option<u32> {
    let user = Status::read(directory).uids.known()?.real;
    let own = namespace::own_users();
    match namespace::user_namespace_makers(directory, own.as_deref()) {
        Reading::Value(makers) => Some(makers.person.unwrap_or(user)),
        Reading::Unsupported => Some(user),
        Reading::Stale(..) | Reading::Failed(_) | Reading::Withheld => None,
    }
}
