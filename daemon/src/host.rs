//! Reads what the system knows of processes and users. The `policy` crate decides what it means.
//!
//! In reading order: data that is read at once (`status` to `namespace`); reads that may hang and
//! run in the background (`background_cache` to `containers`); process metadata from both
//! (`ancestors` to `process_table`); the network use of jobs (`sockets`); evidence for rogue
//! verdicts (`evidence`); and hashes of executables (`hashes`).

pub(crate) mod accounts;
mod ancestors;
mod background_cache;
mod cgroup;
pub(crate) mod commands;
pub(crate) mod containers;
mod cpu;
#[cfg_attr(not(test), expect(dead_code, reason = "rogue verdicts will use it"))]
pub(crate) mod evidence;
pub(crate) mod fuse;
pub(crate) mod fuzz_api;
pub(crate) mod hashes;
mod login_defs;
pub(crate) mod memory;
pub(crate) mod namespace;
pub(crate) mod person;
pub(crate) mod process;
pub(crate) mod process_metadata;
pub(crate) mod process_state;
pub(crate) mod process_table;
mod seat;
pub(crate) mod sockets;
mod status;
#[cfg(test)]
mod test_process;
pub(crate) mod users;
