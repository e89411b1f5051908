//! gpukilld: knows who uses the GPUs of this host.
//!
//! In reading order. `LAYERS` in the suite's `tidy` says which module may use which:
//! - [`args`], [`config`], [`clock`]: start and settings
//! - `log_events`, `logging`, `systemd`: reports to the admin
//! - `fault`: faults as the parts of the daemon report them
//! - `quiesce`: releases a driver on request
//! - `procfs`: the small files of the kernel
//! - `fd_scan`: the processes that have a device file open
//! - [`sensor`], `backend`: readings of devices; `gpukill-sensor` is a program of its own
//! - `host`: processes and people, as the system knows them
//! - `store`: samples and actions
//! - `state`: the newest snapshot
//! - `poll`: one poll, from readings to a snapshot and a sample
//! - `authority`: the rights of callers
//! - `kill`: ends processes
//! - `reset`: resets devices
//! - `terminals`: writes to the terminals of people
//! - `evaluator`: reads and tries rules in a short-lived child
//! - `state_file`: the JSON files in the state directory
//! - `guard`: evaluates samples by the rules of the admin
//! - [`reset_helper`]: `gpukill-reset`, a program of its own
//! - `server`: the socket
#![deny(unsafe_code)]

pub mod args;
mod authority;
mod backend;
#[doc(hidden)]
pub mod bench_api;
pub mod clock;
pub mod config;
mod evaluator;
mod fault;
mod fd_scan;
#[doc(hidden)]
pub mod fuzz_api;
mod guard;
mod heap;
mod host;
mod kill;
mod local_time;
mod log_events;
mod logging;
mod poll;
mod procfs;
mod quiesce;
mod reset;
#[doc(hidden)]
pub mod reset_helper;
mod rogue;
mod rules_file;
#[doc(hidden)]
pub mod sensor;
mod server;
mod startup;
mod state;
mod state_file;
mod store;
mod systemd;
mod terminals;

#[doc(hidden)]
pub use host::sockets::bench_api as sockets;
pub use startup::{EXIT_FAILED, EXIT_USAGE, exit_after_usage, run};
