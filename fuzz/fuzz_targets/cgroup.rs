//! Runs the fuzz target `cgroup` of `targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpukill_fuzz::cgroup(bytes));
