//! Fuzzes `targets.rs`'s `text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::text(bytes));
