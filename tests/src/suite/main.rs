//! The stories. Each file tells one, over the real binaries.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends with the place and the reason"
)]

mod see;

mod tidy;
