//! The `gpukilld` process. The library does the work.
#![forbid(unsafe_code)]

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match gpukilld::args::Args::try_parse() {
        Ok(args) => gpukilld::run(&args),
        Err(error) => gpukilld::exit_after_usage(&error),
    }
}
