//! The decisions of gpukill. Pure: the same arguments give the same answer,
//! and nothing here reads a clock, a file, the environment or a process, which
//! `clippy.toml` beside this crate enforces.
//!
//! - [`access`]: may this caller do this?
//! - [`select`]: which devices and processes does a person mean?
//! - [`job`]: what belongs together with a process, and is ended with it?
//! - [`network`]: is a job a service, a notebook, or neither?
//! - [`owner`]: whose is a process?
//! - [`memory`]: how much memory no process explains.
//! - [`holders`]: whose that memory is, and what frees it.
//! - [`kill`]: who is ended, and how.
//! - [`reset`]: which devices can be reset, and what stands in the way.
//! - [`guard`]: who breaks which of the admin's rules, and what comes of it?
//! - [`rogue`]: who may be up to no good, by which signs?
//! - [`subordinate`]: whose are the subordinate ids that people run jobs as?
//! - [`turns`]: who is next, where many wait?
//! - [`usage`]: how long each process used each device, in sums that add up.
//! - [`health`], [`xid`]: what is wrong with a device by its own account.
//! - [`digest`]: what identifies texts and rules.
//! - `document`: texts of rules that people write, changed without a word of theirs lost.
//! - [`alert`]: which device is hotter or fuller than the admin's thresholds?
#![forbid(unsafe_code)]

pub mod access;

pub mod select;

pub mod job;

pub mod network;

pub mod owner;

pub mod subordinate;

pub mod turns;

pub mod memory;

pub mod holders;

pub mod kill;

pub mod reset;

pub mod usage;

pub mod guard;

pub mod rogue;

pub mod health;

pub mod xid;

pub mod alert;

pub mod digest;

mod document;

#[cfg(test)]
mod golden;

#[cfg(test)]
mod samples;
