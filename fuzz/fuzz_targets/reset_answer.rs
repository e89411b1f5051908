//! Fuzzes `targets.rs`'s `reset_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::reset_answer(bytes));
