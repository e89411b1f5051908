//! The modes a GPU is in. They are only told; nothing here changes one.

use std::ffi::c_uint;

use crate::code::Code;
use crate::export::gpu_functions;
use crate::layout::Handle;
use crate::out::{Out, put, put_known};

gpu_functions! {
    fn nvmlDeviceGetPersistenceMode(gpu; mode: Out<c_uint>) {
        put_known(gpu.persistence.map(c_uint::from), mode)
    }

    fn nvmlDeviceGetComputeMode(gpu; mode: Out<c_uint>) {
        put_known(gpu.compute_mode, mode)
    }

    fn nvmlDeviceGetPerformanceState(gpu; state: Out<c_uint>) {
        put_known(gpu.performance_state, state)
    }

    fn nvmlDeviceGetDisplayMode(gpu; attached: Out<c_uint>) {
        put(gpu.display.into(), attached)
    }

    fn nvmlDeviceGetDisplayActive(gpu; active: Out<c_uint>) {
        put(gpu.display.into(), active)
    }

    fn nvmlDeviceGetMigMode(gpu; current: Out<c_uint>, pending: Out<c_uint>) {
        let mode = gpu.mig.map(c_uint::from);
        put_known(mode, current)?;
        put_known(mode, pending)
    }

    /// Seven is what every part with MIG offers; one without it answers 0, not an error.
    fn nvmlDeviceGetMaxMigDeviceCount(gpu; count: Out<c_uint>) {
        put(if gpu.mig.is_some() { 7 } else { 0 }, count)
    }

    /// No place holds an instance, which is what NOT_FOUND says.
    fn nvmlDeviceGetMigDeviceHandleByIndex(gpu; index: c_uint, device: Out<Handle>) {
        if device.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        match gpu.mig {
            Some(true) if index < 7 => Err(Code::NOT_FOUND),
            Some(true) => Err(Code::INVALID_ARGUMENT),
            Some(false) | None => Err(Code::NOT_SUPPORTED),
        }
    }

    fn nvmlDeviceIsMigDeviceHandle(_gpu; is_mig: Out<c_uint>) {
        put(0, is_mig)
    }
}
