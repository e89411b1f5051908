//! Fuzzes `targets.rs`'s `pattern`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::pattern(bytes));
