//! Fuzzes `targets.rs`'s `ids`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::ids(bytes));
