//! Fuzzes `targets.rs`'s `sensor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::sensor(bytes));
