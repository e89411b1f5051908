//! Whole-system scenarios over the real binaries. Each file covers one subject.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends with the place and the reason"
)]

mod budget;
mod client;
mod client_connections;
mod container_image;
mod daemon;
mod demo;
mod driver_failures;
mod explain;
mod fuzz_corpus;
mod gateway;
mod guard;
mod holders;
mod host;
mod installed;
mod kill;
mod list;
mod load;
mod raw;
mod readings;
mod readme;
mod report;
mod reset;
mod rogue_corpus;
mod rogue_rules;
mod rogue_scan;
mod sockets;
mod store;
mod tidy;
mod vendors;
mod wire;
