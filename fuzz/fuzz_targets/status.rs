//! Fuzzes `targets.rs`'s `status`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::status(bytes));
