//! Fuzzes `targets.rs`'s `rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::rules(bytes));
