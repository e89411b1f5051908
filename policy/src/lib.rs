//! The decisions of gpukill. Pure: the same arguments give the same answer,
//! and nothing here reads a clock, a file, the environment or a process, which
//! `clippy.toml` beside this crate enforces.
//!
//! - [`access`]: may this caller do this?
//! - [`select`]: which devices and processes does a person mean?
//! - [`memory`]: how much memory no process explains.
#![forbid(unsafe_code)]

pub mod access;

pub mod select;

pub mod memory;
