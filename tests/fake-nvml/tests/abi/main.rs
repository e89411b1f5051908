//! The stand-in as a C program meets it: the built library, loaded, and called through bindings that
//! were generated from `nvml.h`. Layouts and symbols are held against those here.
#![allow(
    unsafe_code,
    reason = "a C library is called; each test passes what nvml.h asks for"
)]

mod played;

mod events;
mod faults;
mod fields;
mod lists;
mod load;
mod mig;
mod missing;
mod repairs;
