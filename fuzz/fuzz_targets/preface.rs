//! Fuzzes `targets.rs`'s `preface`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::preface(bytes));
