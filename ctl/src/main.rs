//! `gpukillctl`: passes the command line to the library and exits with its code.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    gpukillctl::run(std::env::args_os()).into()
}
