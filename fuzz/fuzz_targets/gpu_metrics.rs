//! Fuzzes `targets.rs`'s `gpu_metrics`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::gpu_metrics(bytes));
