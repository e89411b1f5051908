//! The `gpukilld` process. The library does the work.
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match gpukilld::args::Args::try_parse() {
        Ok(args) => gpukilld::run(&args),
        Err(error) => {
            // clap returns help and version as errors, although they are none.
            let code = if error.use_stderr() {
                gpukilld::EXIT_USAGE
            } else {
                0
            };
            // A failure to print cannot be reported anywhere.
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}
