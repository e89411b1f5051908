//! Fuzzes `targets.rs`'s `environment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::environment(bytes));
