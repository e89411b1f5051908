//! Reads what the system knows of processes and users. The `policy` crate decides what it means.
//!
//! In reading order: data that is read at once (`status` to `namespace`); reads that may hang and
//! run in the background (`background_cache` to `containers`); process metadata from both
//! (`ancestors` to `process_table`); the network use of jobs (`sockets`); evidence for rogue
//! verdicts (`evidence`); and hashes of executables (`hashes`).

mod status;

mod cpu;

mod cgroup;

pub(crate) mod person;

pub(crate) mod namespace;

mod background_cache;

pub(crate) mod users;

pub(crate) mod commands;

pub(crate) mod accounts;

pub(crate) mod containers;

mod ancestors;

pub(crate) mod fuse;

mod login_defs;

pub(crate) mod memory;

pub(crate) mod process_state;

pub(crate) mod process_metadata;

pub(crate) mod process;

pub(crate) mod process_table;

pub(crate) mod sockets;

#[cfg_attr(not(test), expect(dead_code, reason = "rogue verdicts will use it"))]
pub(crate) mod evidence;

pub(crate) mod hashes;

mod seat;

#[cfg(test)]
mod test_process;

pub(crate) mod fuzz_api;
