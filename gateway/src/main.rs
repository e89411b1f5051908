//! The `gpukill-gateway` process. The library does the work.
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match gpukill_gateway::args::Args::try_parse() {
        Ok(args) => gpukill_gateway::run(&args),
        Err(error) => {
            // clap returns help and version as errors, although they are none.
            let code = if error.use_stderr() {
                gpukill_gateway::EXIT_USAGE
            } else {
                0
            };
            // A failure to print cannot be reported anywhere.
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}
