//! Applies the faults of the state file to a call before it does anything else.

use std::ffi::c_int;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use crate::code::{Answer, Code};
use crate::device::Device;
use crate::state::{Gpu, State};
use crate::trespass::trespass;

/// Applies faults of the whole library: a delay, a hang, or the end of the process.
pub(crate) fn apply_faults(state: &State, function: &str) -> Answer {
    if state.delay_ms > 0 {
        thread::sleep(Duration::from_millis(state.delay_ms));
    }
    for file in &state.tamper {
        tamper(file);
    }
    if let Some(file) = &state.trespass {
        trespass(file);
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

/// Applies faults of a GPU or an instance.
pub(crate) fn apply_device_faults(device: &Device<'_>, function: &str) -> Answer {
    apply_gpu_faults(device.gpu, function)?;
    let errors = device.instance.map(|instance| &instance.errors);
    let code = errors.and_then(|errors| errors.get(function));
    code.map_or(Ok(()), |code| Err(Code(*code)))
}

/// Applies faults of one GPU, which also affect its instances.
pub(crate) fn apply_gpu_faults(gpu: &Gpu, function: &str) -> Answer {
    if gpu.hang.contains(function) {
        hang();
    }
    if let Some(delay_ms) = gpu.slow.get(function) {
        thread::sleep(Duration::from_millis(*delay_ms));
    }
    if gpu.lost {
        return Err(Code::GPU_IS_LOST);
    }
    gpu.errors
        .get(function)
        .map_or(Ok(()), |code| Err(Code(*code)))
}

/// Tries to do damage, and ignores refusals.
fn tamper(file: &Path) {
    let opened = OpenOptions::new().append(true).create(true).open(file);
    let _ = opened.and_then(|mut file| file.write_all(b"!"));
    let _ = fs::set_permissions(file, Permissions::from_mode(0o777));
    if let Ok(parent) = parent_id().try_into() {
        // SAFETY: it takes two numbers.
        unsafe { kill(parent, SIGTERM) };
    }
}

const SIGTERM: c_int = 15;

unsafe extern "C" {
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

fn hang() -> ! {
    loop {
        thread::park();
    }
}
