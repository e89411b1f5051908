//! Runs the fuzz target `driver_files` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::driver_files(bytes));
