//! Runs the fuzz target `gateway_request` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::gateway_request(bytes));
