//! Runs the fuzz target `ioreg` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::ioreg(bytes));
