//! The processes on a GPU: three lists (compute, graphics, MPS), each in three versions.

use std::ffi::c_uint;

use crate::export::gpu_functions;
use crate::layout::{ProcessV1, ProcessV2};
use crate::out::put_list;
use crate::state::{Gpu, Kind, Process};

/// NVML_VALUE_NOT_AVAILABLE.
const MEMORY_UNKNOWN: u64 = u64::MAX;

/// The instance of a process that is in none.
const NO_INSTANCE: c_uint = c_uint::MAX;

/// The three versions of one list.
macro_rules! process_lists {
    ($($of:ident: $v1:ident $v2:ident $v3:ident)*) => {gpu_functions! {$(
        fn $v1(gpu; count: Option<&mut c_uint>, list: *mut ProcessV1) {
            // SAFETY: nvml.h has the caller pass room for `count` items at `list`.
            unsafe { put_list(&listed(gpu, $of, in_v1), count, list) }
        }

        fn $v2(gpu; count: Option<&mut c_uint>, list: *mut ProcessV2) {
            // SAFETY: nvml.h has the caller pass room for `count` items at `list`.
            unsafe { put_list(&listed(gpu, $of, in_v2), count, list) }
        }

        fn $v3(gpu; count: Option<&mut c_uint>, list: *mut ProcessV2) {
            // SAFETY: nvml.h has the caller pass room for `count` items at `list`.
            unsafe { put_list(&listed(gpu, $of, in_v2), count, list) }
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

fn listed<T>(gpu: &Gpu, is_of: fn(Kind) -> bool, layout: fn(&Process) -> T) -> Vec<T> {
    gpu.processes
        .iter()
        .filter(|process| is_of(process.kind))
        .map(layout)
        .collect()
}

fn computes(kind: Kind) -> bool {
    matches!(kind, Kind::Compute | Kind::Both)
}

fn draws(kind: Kind) -> bool {
    matches!(kind, Kind::Graphics | Kind::Both)
}

fn shares(kind: Kind) -> bool {
    matches!(kind, Kind::Mps)
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
