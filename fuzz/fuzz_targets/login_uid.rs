//! Runs the fuzz target `login_uid` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::login_uid(bytes));
