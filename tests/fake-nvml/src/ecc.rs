//! ECC mode and memory error counters.

use std::ffi::{c_uint, c_ulonglong};

use crate::code::Code;
use crate::export::gpu_functions;
use crate::out::{Out, put, put_known};

gpu_functions! {
    /// A change would wait for the next boot; no change is ever pending here.
    fn nvmlDeviceGetEccMode(gpu; current: Out<c_uint>, pending: Out<c_uint>) {
        let enabled = gpu.ecc.as_ref().map(|ecc| c_uint::from(ecc.enabled));
        put_known(enabled, current)?;
        put_known(enabled, pending)
    }

    fn nvmlDeviceGetTotalEccErrors(gpu; error: c_uint, counter: c_uint, count: Out<c_ulonglong>) {
        let ecc = gpu.ecc.as_ref().filter(|ecc| ecc.enabled).ok_or(Code::NOT_SUPPORTED)?;
        let known = match (error, counter) {
            (0, 0) => ecc.volatile_corrected,
            (1, 0) => ecc.volatile_uncorrected,
            (0, 1) => ecc.aggregate_corrected,
            (1, 1) => ecc.aggregate_uncorrected,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        put(known, count)
    }
}
