//! Fuzzes `targets.rs`'s `container`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::container(bytes));
