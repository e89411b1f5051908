//! The faults of the state file, met by a call before it does anything.

use std::process;
use std::thread;
use std::time::Duration;

use crate::code::{Answer, Code};
use crate::state::{Gpu, State};

/// Faults of the whole library: may take time, never return, or end the process.
pub(crate) fn meet(state: &State, function: &str) -> Answer {
    if state.delay_ms > 0 {
        thread::sleep(Duration::from_millis(state.delay_ms));
    }
    if state.crash.contains(function) {
        process::abort();
    }
    if state.hang.contains(function) {
        hang();
    }
    state
        .errors
        .get(function)
        .map_or(Ok(()), |code| Err(Code(*code)))
}

/// Faults of one GPU, and of all that is on it.
pub(crate) fn meet_gpu(gpu: &Gpu, function: &str) -> Answer {
    if gpu.hang.contains(function) {
        hang();
    }
    if gpu.lost {
        return Err(Code::GPU_IS_LOST);
    }
    gpu.errors
        .get(function)
        .map_or(Ok(()), |code| Err(Code(*code)))
}

fn hang() -> ! {
    loop {
        thread::park();
    }
}
