//! Fuzzes `targets.rs`'s `driver_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::driver_files(bytes));
