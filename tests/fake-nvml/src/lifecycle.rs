//! `nvmlInit` and `nvmlShutdown`, which are counted.

use std::ffi::c_uint;

use crate::code::Code;
use crate::session;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit() -> Code {
    session::open("nvmlInit")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit_v2() -> Code {
    session::open("nvmlInit_v2")
}

/// The flags (no GPUs required, attach none) relax requirements that this library does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    session::open("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlShutdown() -> Code {
    session::close("nvmlShutdown")
}
