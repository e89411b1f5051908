//! Fuzzes `targets.rs`'s `stat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::stat(bytes));
