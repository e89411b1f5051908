//! The modes of a GPU. They are only reported; no function here changes a mode.

use std::ffi::c_uint;

use crate::export::gpu_functions;
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
}
