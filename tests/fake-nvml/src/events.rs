//! Event sets. They can be made, filled and waited on; no event ever comes.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::thread;
use std::time::Duration;

use crate::code::{Answer, Code};
use crate::export::{functions, gpu_functions};
use crate::layout::Handle;
use crate::out::{Out, put};
use crate::session;

/// Single-bit (1) and double-bit (2) memory errors and critical XIDs (8).
const SUPPORTED: c_ulonglong = 0x1 | 0x2 | 0x8;

functions! {
    fn nvmlEventSetCreate(_state; set: Out<Handle>) {
        if set.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        put(session::new_event_set(), set)
    }

    fn nvmlEventSetFree(_state; set: Handle) {
        if session::free_event_set(set) { Ok(()) } else { Err(Code::INVALID_ARGUMENT) }
    }

    fn nvmlEventSetWait(_state; set: Handle, data: *mut c_void, timeout_ms: c_uint) {
        wait(set, data, timeout_ms)
    }

    fn nvmlEventSetWait_v2(_state; set: Handle, data: *mut c_void, timeout_ms: c_uint) {
        wait(set, data, timeout_ms)
    }
}

gpu_functions! {
    fn nvmlDeviceGetSupportedEventTypes(_gpu; types: Out<c_ulonglong>) {
        put(SUPPORTED, types)
    }

    fn nvmlDeviceRegisterEvents(_gpu; types: c_ulonglong, set: Handle) {
        if !session::has_event_set(set) {
            return Err(Code::INVALID_ARGUMENT);
        }
        // One unsupported type refuses them all: callers are to ask first and mask.
        if types & !SUPPORTED == 0 { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
    }
}

fn wait(set: Handle, data: *mut c_void, timeout_ms: c_uint) -> Answer {
    if data.is_null() || !session::has_event_set(set) {
        return Err(Code::INVALID_ARGUMENT);
    }
    thread::sleep(Duration::from_millis(timeout_ms.into()));
    Err(Code::TIMEOUT)
}
