//! Fuzzes `targets.rs`'s `hwmon`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::hwmon(bytes));
