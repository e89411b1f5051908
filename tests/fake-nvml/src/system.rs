//! The versions of the driver, of NVML and of CUDA.

use std::ffi::{c_char, c_int, c_uint};

use crate::export::functions;
use crate::out::{Out, put, put_text};

functions! {
    fn nvmlSystemGetDriverVersion(state; version: *mut c_char, length: c_uint) {
        // SAFETY: nvml.h requires the caller to pass `length` bytes at `version`.
        unsafe { put_text(&state.driver, version, length) }
    }

    fn nvmlSystemGetNVMLVersion(state; version: *mut c_char, length: c_uint) {
        // SAFETY: nvml.h requires the caller to pass `length` bytes at `version`.
        unsafe { put_text(&state.nvml, version, length) }
    }

    fn nvmlSystemGetCudaDriverVersion(state; version: Out<c_int>) {
        put(state.cuda, version)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(state; version: Out<c_int>) {
        put(state.cuda, version)
    }
}
