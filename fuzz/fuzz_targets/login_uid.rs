//! Fuzzes `targets.rs`'s `login_uid`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::login_uid(bytes));
