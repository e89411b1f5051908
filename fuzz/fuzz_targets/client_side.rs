//! Fuzzes `targets.rs`'s `client_side`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::client_side(bytes));
