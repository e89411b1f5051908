//! Fuzzes `targets.rs`'s `fdinfo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::fdinfo(bytes));
