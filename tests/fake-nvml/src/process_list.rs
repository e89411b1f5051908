//! The processes on a GPU or a MIG instance: three lists (compute, graphics, MPS), each in three
//! versions.

use std::ffi::c_uint;

use crate::code::Code;
use crate::device::Device;
use crate::export::device_functions;
use crate::layout::{ProcessOfR535, ProcessV1, ProcessV2};
use crate::out::put_growing_list;
use crate::state::{Process, ProcessKind, ProcessRecord};

/// NVML_VALUE_NOT_AVAILABLE.
const MEMORY_UNKNOWN: u64 = u64::MAX;

/// The instance of a process without an instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

/// The three versions of one list.
macro_rules! process_lists {
    ($($of:ident: $v1:ident $v2:ident $v3:ident)*) => {device_functions! {$(
        fn $v1(device; count: Option<&mut c_uint>, list: *mut ProcessV1) {
            let listed = listed(device, $of, in_v1)?;
            // SAFETY: nvml.h requires the caller to pass room for `count` items at `list`.
            unsafe { put_growing_list(device.gpu, &listed, count, list) }
        }

        fn $v2(device; count: Option<&mut c_uint>, list: *mut ProcessV2) {
            let listed = listed(device, $of, in_v2)?;
            // SAFETY: nvml.h requires the caller to pass room for `count` items at `list`.
            unsafe { put_growing_list(device.gpu, &listed, count, list) }
        }

        fn $v3(device; count: Option<&mut c_uint>, list: *mut ProcessV2) {
            match device.state.process_record {
                ProcessRecord::Bytes24 => {
                    let listed = listed(device, $of, in_v2)?;
                    // SAFETY: nvml.h requires the caller to pass room for `count` items at `list`.
                    unsafe { put_growing_list(device.gpu, &listed, count, list) }
                }
                ProcessRecord::Bytes32 => {
                    let listed = listed(device, $of, as_of_r535)?;
                    // SAFETY: as unsafe as those builds were. nvml.h does not require the caller to
                    // leave this much room; a caller that leaves less has the mistake that this
                    // simulates.
                    unsafe { put_growing_list(device.gpu, &listed, count, list.cast()) }
                }
            }
        }
    )*}};
}

process_lists! {
    computes: nvmlDeviceGetComputeRunningProcesses
        nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3
    draws: nvmlDeviceGetGraphicsRunningProcesses
        nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3
    shares: nvmlDeviceGetMPSComputeRunningProcesses
        nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses_v3
}

fn listed<T>(
    device: Device<'_>,
    is_of: fn(ProcessKind) -> bool,
    layout: fn(&Process) -> T,
) -> Result<Vec<T>, Code> {
    let refusal = match device.instance {
        Some(_) => device.gpu.mig_instance_lists,
        None if device.gpu.is_divided() => device.gpu.mig_parent_lists,
        None => 0,
    };
    if refusal != 0 {
        return Err(Code(refusal));
    }
    let listed = device.processes().filter(|process| is_of(process.kind));
    Ok(listed.map(layout).collect())
}

fn computes(kind: ProcessKind) -> bool {
    matches!(kind, ProcessKind::Compute | ProcessKind::Both)
}

fn draws(kind: ProcessKind) -> bool {
    matches!(kind, ProcessKind::Graphics | ProcessKind::Both)
}

fn shares(kind: ProcessKind) -> bool {
    matches!(kind, ProcessKind::Mps)
}

fn in_v1(process: &Process) -> ProcessV1 {
    ProcessV1 {
        pid: process.pid,
        used_memory: process.memory.unwrap_or(MEMORY_UNKNOWN),
    }
}

fn in_v2(process: &Process) -> ProcessV2 {
    ProcessV2 {
        pid: process.pid,
        used_memory: process.memory.unwrap_or(MEMORY_UNKNOWN),
        gpu_instance: process.gpu_instance.unwrap_or(NO_INSTANCE),
        compute_instance: process.compute_instance.unwrap_or(NO_INSTANCE),
    }
}

fn as_of_r535(process: &Process) -> ProcessOfR535 {
    ProcessOfR535 {
        v2: in_v2(process),
        protected_memory: process.protected_memory,
    }
}
