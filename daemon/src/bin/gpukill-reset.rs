//! The entry point of gpukill-reset; its code is in the library.
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match gpukilld::reset_helper::ResetHelperArgs::try_parse() {
        Ok(args) => gpukilld::reset_helper::run(&args),
        Err(error) => gpukilld::exit_after_usage(&error),
    }
}
