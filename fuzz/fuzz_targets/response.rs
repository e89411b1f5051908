//! Fuzzes `targets.rs`'s `response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::response(bytes));
