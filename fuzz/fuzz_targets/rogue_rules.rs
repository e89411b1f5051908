//! Fuzzes `targets.rs`'s `rogue_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::rogue_rules(bytes));
