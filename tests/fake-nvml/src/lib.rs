//! A stand-in for NVIDIA's `libnvidia-ml.so.1`, playing the machine described in a state file.
//!
//! `FAKE_NVML_STATE` names the file; [`state`] documents what it holds. The file is looked at again
//! on every call, so a test changes the machine by replacing it (write beside it, then rename).
//! A function that no module here answers is listed in `unsupported` and says so, as on a card
//! without the feature; one not even listed is missing, as on an older driver. To make more of them missing, a test loads a
//! copy of the built library that `older.rs`, beside `src`, has changed.

// A C library is spoken to through pointers, its symbols keep their C names, and they are reached
// by those and not by a Rust path.
#![allow(unsafe_code, non_snake_case, unreachable_pub)]

// What is played, and which call is let through to it.
mod clock;
mod device;
mod event_set;
mod fault;
mod pci;
mod session;
mod state;
mod state_file;
mod trespass;

// How it crosses the C boundary.
mod code;
mod export;
mod layout;
mod out;

// The functions themselves, by subject.
mod ecc;
mod events;
mod fields;
mod identity;
mod lifecycle;
mod lookup;
mod memory;
mod mig;
mod modes;
mod pcie;
mod process_list;
mod process_samples;
mod repairs;
mod sensors;
mod system;
mod throttle;
mod unsupported;
