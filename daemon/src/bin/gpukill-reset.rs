//! gpukill-reset: the process. What it does is in the library.
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match gpukilld::helper::Args::try_parse() {
        Ok(args) => gpukilld::helper::run(&args),
        Err(error) => {
            // Help and version are errors to clap, and are none.
            let code = if error.use_stderr() {
                gpukilld::EXIT_USAGE
            } else {
                0
            };
            // Nobody can be told when even this cannot be printed.
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}
