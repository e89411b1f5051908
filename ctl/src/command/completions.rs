//! `completions`: what a shell needs to complete our arguments.

use crate::args::{Completions, command, completions};
use crate::exit::{Exit, Failure};
use crate::output::print;

/// Prints the completions for a shell.
pub(crate) fn run(wanted: &Completions) -> Result<Exit, Failure> {
    print(&completions(wanted.shell, &command()))?;
    Ok(Exit::Done)
}
