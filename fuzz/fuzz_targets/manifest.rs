//! Runs the fuzz target `manifest` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::manifest(bytes));
