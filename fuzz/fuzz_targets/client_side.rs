//! Runs the fuzz target `client_side` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::client_side(bytes));
