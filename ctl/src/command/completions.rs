//! `completions`: prints the completions for a shell.

use crate::args::{Completions, command, completions};
use crate::exit::{Error, Exit};
use crate::output::print;

pub(crate) fn run(wanted: &Completions) -> Result<Exit, Error> {
    print(&completions(wanted.shell, &command()))?;
    Ok(Exit::Done)
}
