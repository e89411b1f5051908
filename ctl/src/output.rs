//! Every word on the screen. Data goes to stdout through [`print`] and [`screen`], everything
//! else to stderr through [`message`].
//!
//! - [`style`]: width, characters and colours.
//! - [`text`], [`table`], [`value`], [`age`]: the parts of tables.
//! - [`owner_cells`], [`markers`], [`loss`]: texts about a process or a device.
//! - [`view`]: the frame of `list`; [`gpus`] and [`processes`] are its tables, [`columns`] their
//!   requested columns.
//! - [`holders`], [`explain`]: the processes that have GPUs open, and one process; [`finding`]
//!   explains memory that no process accounts for.
//! - [`kill`]: the plan and the outcome of a kill.
//! - [`reset`]: the plan and the outcome of a reset.
//! - [`guard`]: violations, and what rules would have done.
//! - [`rules`]: the changes of an edit, and the mistakes in a file of rules.
//! - [`rogue`]: suspicious processes and the recommended actions.
//! - [`report`]: the facts for a bug report.
//! - [`status`], [`history`], [`actions`], [`summary`]: the other answers, for people.
//! - [`json`], [`csv`]: the same answers for programs.
//! - [`export`]: records and copies in files; [`prune`]: what is deleted.
//! - [`screen`]: the terminal during `list --watch`.
//! - [`spinner`]: one line on stderr during a wait.

pub(crate) mod actions;
mod age;
pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod explain;
pub(crate) mod export;
mod finding;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod gpus;
pub(crate) mod guard;
pub(crate) mod history;
pub(crate) mod holders;
pub(crate) mod json;
pub(crate) mod keyboard;
pub(crate) mod kill;
mod loss;
mod markers;
pub(crate) mod message;
mod owner_cells;
pub(crate) mod processes;
pub(crate) mod prune;
pub(crate) mod report;
pub(crate) mod reset;
pub(crate) mod rogue;
pub(crate) mod rules;
pub(crate) mod screen;
pub(crate) mod spinner;
pub(crate) mod status;
pub(crate) mod style;
pub(crate) mod summary;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod view;

use crate::exit::Error;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use style::OutputStyle;
use text::Line;

/// Prints lines for people.
pub(crate) fn print_lines(lines: &[Line], style: &OutputStyle) -> Result<(), Error> {
    let mut text = String::with_capacity(128 * lines.len());
    for line in lines {
        line.paint_to(&mut text, style);
        text.push('\n');
    }
    print(&text)
}

/// Standard output as a file, to bypass its buffer.
pub(crate) fn stdout_file() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Prints text unchanged, at once.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}
