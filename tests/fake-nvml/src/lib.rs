//! A stand-in for NVIDIA's `libnvidia-ml.so.1` that simulates the machine described in a state
//! file.
//!
//! `FAKE_NVML_STATE` names the file; [`state`] documents its content. The file is checked on every
//! call, so a test changes the machine by replacing it (write beside it, then rename). A function
//! that no module here implements is listed in `unsupported` and returns NOT_SUPPORTED, as on a
//! card without the feature; a function that is not listed is missing, as on an older driver. To
//! remove more functions, a test loads a copy of the built library that `older.rs`, beside `src`,
//! has changed.

// A C library is called through pointers, its symbols keep their C names, and callers use those
// names instead of a Rust path.
#![allow(unsafe_code, non_snake_case, unreachable_pub)]

// The simulated machine, and the checks before each call.
mod clock;
mod device;
mod event_set;
mod fault;
mod pci;
mod session;
mod state;
mod state_file;
mod trespass;

// The C boundary.
mod code;
mod export;
mod layout;
mod out;

// The functions, by subject.
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
