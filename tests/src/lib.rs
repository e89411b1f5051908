//! Whole-system tests of gpukill and what they need.
//!
//! [`harness`] starts the real binaries over the stand-in NVML in a directory
//! of their own; `suite/` holds the stories; `bin/demo` is `cargo demo`.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends with the place and the reason"
)]

pub mod harness;
