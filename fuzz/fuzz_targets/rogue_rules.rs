//! Runs the fuzz target `rogue_rules` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::rogue_rules(bytes));
