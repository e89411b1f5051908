//! `completions`: what a shell needs to complete our arguments.

use crate::args::{Cli, Completions, visible};
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::CommandFactory as _;

/// Prints the completions for a shell.
pub(crate) fn run(wanted: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut command = visible(&Cli::command());
    clap_complete::generate(wanted.shell, &mut command, "gpukillctl", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
