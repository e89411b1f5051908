//! Fuzzes `targets.rs`'s `ioreg`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::ioreg(bytes));
