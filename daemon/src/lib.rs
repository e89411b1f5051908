//! gpukilld: knows who uses the GPUs of this host.
//!
//! In reading order, lowest first. ARCHITECTURE.md says which module may use which:
//! - [`args`], [`config`], [`clock`]: start and settings
//! - `log_events`, `logging`, `systemd`: reports to the admin
//! - `quiesce`: releases a driver on request
//! - `procfs`: the small files of the kernel
//! - `fd_scan`: which process has which device file open
//! - [`sensor`], `backend`: readings of devices; `gpukill-sensor` is a program of its own
//! - `host`: processes and people, as the system knows them
//! - `store`: samples and actions
//! - `fault_tracker`, `state`, `poll`, `poller`: one poll, from readings to a snapshot
//! - `full_scan`: a scan of all processes, on request
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
pub mod clock;
pub mod config;
mod evaluator;
mod fault_tracker;
mod fd_scan;
mod full_scan;
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
mod poller;
mod procfs;
mod quiesce;
mod reset;
#[doc(hidden)]
pub mod reset_helper;
mod rogue;
mod rules_file;
mod sampler;
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
pub use fd_scan::bench_api;

pub use host::sockets::bench_api as sockets;
#[doc(hidden)]
pub use sampler::bench_api as gathered;

pub use startup::{EXIT_FAILED, EXIT_USAGE, run};
