//! Fuzzes `targets.rs`'s `server_side`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::server_side(bytes));
