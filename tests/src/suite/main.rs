//! The stories. Each file tells one, over the real binaries.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends with the place and the reason"
)]

mod acting;

mod budget;

mod client;

mod containers_recipe;

mod demo;

mod people;

mod readings;

mod readme;

mod report;

mod reset;

mod see;

mod vendors;

mod holders;

mod guard;

mod rogue;

mod rogue_watch;

mod rogue_rules;

mod sockets;

mod store;

mod wire;

mod load;

mod corpus;

mod manners;

mod installed;

mod raw;

mod tidy;
