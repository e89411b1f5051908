//! Runs the fuzz target `gateway_query` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::gateway_query(bytes));
