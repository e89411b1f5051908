//! The entry point of gpukill-sensor; its code is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gpukilld::sensor::run(std::env::args_os())
}
