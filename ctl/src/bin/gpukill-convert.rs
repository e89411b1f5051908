//! `gpukill-convert`: Parquet and YAML for gpukillctl. The code is in the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    gpukillctl::convert::run(std::env::args_os())
}
