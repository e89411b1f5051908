//! Fuzzes `targets.rs`'s `request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::request(bytes));
