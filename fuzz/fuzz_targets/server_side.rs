//! Runs the fuzz target `server_side` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::server_side(bytes));
