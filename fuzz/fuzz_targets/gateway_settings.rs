//! Runs the fuzz target `gateway_settings` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::gateway_settings(bytes));
