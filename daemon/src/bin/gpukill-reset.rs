//! The entry point of gpukill-reset; its code is in the library.
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match gpukilld::reset_helper::ResetHelperArgs::try_parse() {
        Ok(args) => gpukilld::reset_helper::run(&args),
        Err(error) => {
            // clap returns help and version as errors, but they are none.
            let code = if error.use_stderr() {
                gpukilld::EXIT_USAGE
            } else {
                0
            };
            // If even this cannot be printed, there is no place to report it.
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}
