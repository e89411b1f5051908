//! Fuzzes `targets.rs`'s `sockets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::sockets(bytes));
