//! gpukill-pages DIR: writes the manual, the completions and the default settings.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        return failed("usage: gpukill-pages DIR");
    };
    let epoch = std::env::var_os("SOURCE_DATE_EPOCH");
    match gpukill_pages::write(Path::new(&directory), epoch.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> ExitCode {
    // If stderr fails too, there is no way to report it.
    let _ = writeln!(std::io::stderr(), "gpukill-pages: {why}");
    ExitCode::FAILURE
}
