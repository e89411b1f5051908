//! Whole-system tests of gpukill and what they need.
//!
//! [`harness`] starts the real binaries with the stand-in NVML in a temporary directory;
//! `suite/` holds the scenarios; `bin/demo` is `cargo demo`.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends with the place and the reason"
)]

pub mod harness;
