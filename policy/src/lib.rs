//! The decisions of gpukill. They are pure: the same arguments give the same answer, and no code
//! here reads a clock, a file, the environment or a process. `clippy.toml` of this crate enforces
//! this.
//!
//! - [`access`]: which operations a caller may perform
//! - [`select`]: which devices and processes a person selects
//! - [`job`]: which processes belong together and are ended together
//! - [`network`]: whether a job is a service, a notebook, or neither
//! - [`owner`], [`subordinate`]: the person that a process or a subordinate id belongs to
//! - [`memory`], [`holders`]: how much memory no process explains, and what frees it
//! - [`kill`]: which processes a kill ends, and how
//! - [`reset`]: which devices can be reset, and what blocks a reset
//! - [`guard`]: which of the admin's rules are violated, and what the guard does
//! - [`rogue`]: which processes are suspicious, by which indicators
//! - [`round_robin`]: the fair order of many requests
//! - [`usage`]: how long each process used each device, in sums that add up
//! - [`health`]: problems that a device reports about itself
//! - [`alert`]: which devices cross the admin's thresholds
//! - [`digest`]: identifiers of texts and rules
//! - `document`: edits of rule files that keep comments and formatting
#![forbid(unsafe_code)]

pub mod access;
pub mod alert;
pub mod digest;
mod document;
#[cfg(test)]
#[path = "../tests/support/fixtures.rs"]
mod fixtures;
#[cfg(test)]
#[path = "../tests/support/golden.rs"]
mod golden;
pub mod guard;
pub mod health;
pub mod holders;
pub mod job;
pub mod kill;
pub mod memory;
pub mod network;
pub mod owner;
pub mod reset;
pub mod rogue;
pub mod round_robin;
pub mod select;
pub mod subordinate;
pub mod usage;
