//! Runs the fuzz target `gpu_metrics` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::gpu_metrics(bytes));
