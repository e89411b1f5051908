//! `gpukillctl`: hands the command line to the library and ends with its answer.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    gpukillctl::run(std::env::args_os()).into()
}
