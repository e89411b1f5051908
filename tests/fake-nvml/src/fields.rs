//! Field values, asked for many at a time and each with a return code of its own. None is played
//! yet: every field answers NOT_SUPPORTED.

use std::ffi::c_int;

use crate::code::Code;
use crate::export::gpu_functions;
use crate::layout::FieldValue;

gpu_functions! {
    fn nvmlDeviceGetFieldValues(_gpu; count: c_int, fields: *mut FieldValue) {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        if count == 0 || fields.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        for place in 0..count {
            // SAFETY: nvml.h has the caller pass `count` items at `fields`.
            unsafe { (&raw mut (*fields.add(place)).code).write(Code::NOT_SUPPORTED) };
        }
        Ok(())
    }
}
