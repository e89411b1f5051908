//! Whole-system scenarios over the real binaries. Each file covers one subject.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends with the place and the reason"
)]

mod kill;

mod budget;

mod client;

mod container_image;

mod demo;

mod host;

mod readings;

mod readme;

mod report;

mod reset;

mod list;

mod vendors;

mod holders;

mod guard;

mod rogue_corpus;

mod rogue_scan;

mod rogue_rules;

mod sockets;

mod store;

mod wire;

mod load;

mod fuzz_corpus;

mod daemon;

mod installed;

mod raw;

mod tidy;
