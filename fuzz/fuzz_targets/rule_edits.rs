//! Runs the fuzz target `rule_edits` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::rule_edits(bytes));
