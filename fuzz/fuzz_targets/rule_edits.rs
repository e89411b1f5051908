//! Fuzzes `targets.rs`'s `rule_edits`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::rule_edits(bytes));
