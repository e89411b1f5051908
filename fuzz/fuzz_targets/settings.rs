//! Fuzzes `targets.rs`'s `settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::settings(bytes));
