//! NVML's return codes and their messages (`nvmlErrorString`).

use std::ffi::{CStr, c_char};

/// A return code as it crosses the C boundary; a state file may use any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

/// The result of a function's body: success, or the code to return.
pub(crate) type Answer = Result<(), Code>;

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);

    fn wording(self) -> &'static CStr {
        match self.0 {
            0 => c"Success",
            1 => c"Uninitialized",
            2 => c"Invalid Argument",
            3 => c"Not Supported",
            4 => c"Insufficient Permissions",
            5 => c"Already Initialized",
            6 => c"Not Found",
            7 => c"Insufficient Size",
            8 => c"Insufficient External Power",
            9 => c"Driver Not Loaded",
            10 => c"Timeout",
            11 => c"Interrupt Request Issue",
            12 => c"NVML Shared Library Not Found",
            13 => c"Function Not Found",
            14 => c"Corrupted infoROM",
            15 => c"GPU is lost",
            16 => c"GPU requires reset",
            17 => c"GPU access blocked by the operating system",
            18 => c"Driver/library version mismatch",
            19 => c"In use by another client",
            20 => c"Insufficient Memory",
            21 => c"No data",
            22 => c"VGPU ECC is not supported",
            23 => c"Insufficient resources",
            24 => c"Frequency not supported",
            25 => c"Argument version mismatch",
            26 => c"Deprecated",
            27 => c"Not Ready",
            28 => c"GPU not found",
            29 => c"Invalid state",
            30 => c"Reset type not supported",
            _ => c"Unknown Error",
        }
    }
}

impl From<Answer> for Code {
    fn from(answer: Answer) -> Self {
        answer.err().unwrap_or(Self::SUCCESS)
    }
}

/// The only function that needs no `nvmlInit`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    code.wording().as_ptr()
}
