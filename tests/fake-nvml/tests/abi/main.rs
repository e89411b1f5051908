//! Tests the stand-in as a C program uses it: the built library is loaded and called through
//! bindings generated from `nvml.h`, which verify its layouts and symbols.
#![allow(
    unsafe_code,
    reason = "a C library is called; each test passes what nvml.h asks for"
)]

mod events;
mod faults;
mod fields;
mod lists;
mod load;
mod loaded_library;
mod mig;
mod missing;
mod repairs;
