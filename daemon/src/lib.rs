//! gpukilld: knows who uses the GPUs of this box.
//!
//! In reading order, lowest first; what a module may know of the others is in
//! ARCHITECTURE.md:
//! - [`args`], [`config`], [`clock`]: how it is started and set up
//! - `catalogue`, `logging`, `systemd`: how it tells the box's admin
//! - `quiesce`: letting go of a driver on request
//! - `procfs`: the kernel's small files
//! - `holders`: who has which device file open
//! - [`sensor`], `backend`: readings of devices; `gpukill-sensor` is a program of its own
//! - `host`: what the system knows of processes and people
//! - `audit`: the store
//! - `faults`, `state`, `tick`, `poller`: one poll, from readings to a snapshot
//! - `look`: a look at all processes, for whoever asks
//! - `authority`: who may what, now
//! - `enforce`: ends processes
//! - `reset`: resets devices
//! - `terminals`: people's terminals, to write to
//! - `evaluator`: reads and tries rules in a short-lived child
//! - `guard`: judges samples by the admin's rules
//! - [`helper`]: `gpukill-reset`, a program of its own
//! - `server`: the socket
#![deny(unsafe_code)]

pub mod args;

pub mod config;

pub mod clock;

mod catalogue;

mod logging;

mod systemd;

mod heap;

mod civil;

mod quiesce;

mod procfs;

mod gather;

mod holders;

#[doc(hidden)]
pub mod sensor;

mod backend;

mod host;

mod audit;

mod faults;

mod state;

mod tick;

mod poller;

mod look;

mod authority;

mod enforce;

#[doc(hidden)]
pub mod helper;

mod reset;

mod terminals;

mod evaluator;

mod rules_file;

mod state_file;

mod guard;

mod rogue;

mod server;

mod startup;

#[doc(hidden)]
pub mod untrusted;

#[doc(hidden)]
pub use holders::measured;

#[doc(hidden)]
pub use gather::measured as gathered;
pub use host::connections::measured as sockets;

pub use startup::{EXIT_FAILED, EXIT_USAGE, run};
