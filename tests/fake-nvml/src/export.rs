//! The three macros that turn a body into an exported C function.
//!
//! With them a function's name is written once (the state file's faults are looked up by it), and
//! no function can omit the checks of [`session`](crate::session).

/// Functions about the driver: `fn nvmlX(state; out: Out<u32>) { … }`, the body an `Answer`.
macro_rules! functions {
    ($($(#[$note:meta])* fn $name:ident($state:ident; $($arg:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::code::Code {
            $crate::session::ask(stringify!($name), move |$state| $body)
        }
    )*};
}

/// Functions about a GPU or a MIG instance, with its handle as the first argument:
/// `fn nvmlX(device; out: Out<u32>) { … }`.
macro_rules! device_functions {
    ($($(#[$note:meta])* fn $name:ident($device:ident; $($arg:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            device: $crate::layout::Handle $(, $arg: $type)*
        ) -> $crate::code::Code {
            $crate::session::ask_device(stringify!($name), device, move |$device| $body)
        }
    )*};
}

/// Functions about one whole GPU, NOT_SUPPORTED for a MIG instance: `fn nvmlX(gpu; …) { … }`.
macro_rules! gpu_functions {
    ($($(#[$note:meta])* fn $name:ident($gpu:ident; $($arg:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            device: $crate::layout::Handle $(, $arg: $type)*
        ) -> $crate::code::Code {
            $crate::session::ask_gpu(stringify!($name), device, move |$gpu| $body)
        }
    )*};
}

pub(crate) use {device_functions, functions, gpu_functions};
