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
