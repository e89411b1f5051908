//! Runs the fuzz target `reset_answer` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::reset_answer(bytes));
