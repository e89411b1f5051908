//! Throttle reasons. Each function has an older name too, which drivers keep.

use std::ffi::c_ulonglong;

use crate::export::gpu_functions;
use crate::out::{Out, put_known};

/// The nine reasons that nvml.h of CUDA 13 names.
const SUPPORTED: c_ulonglong = 0x1ff;

gpu_functions! {
    fn nvmlDeviceGetCurrentClocksEventReasons(gpu; reasons: Out<c_ulonglong>) {
        put_known(gpu.throttle, reasons)
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(gpu; reasons: Out<c_ulonglong>) {
        put_known(gpu.throttle, reasons)
    }

    fn nvmlDeviceGetSupportedClocksEventReasons(gpu; reasons: Out<c_ulonglong>) {
        put_known(gpu.throttle.map(|_| SUPPORTED), reasons)
    }

    fn nvmlDeviceGetSupportedClocksThrottleReasons(gpu; reasons: Out<c_ulonglong>) {
        put_known(gpu.throttle.map(|_| SUPPORTED), reasons)
    }
}
