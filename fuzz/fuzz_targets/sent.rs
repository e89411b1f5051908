//! Runs the fuzz target `sent` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::sent(bytes));
