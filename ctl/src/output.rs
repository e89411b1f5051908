//! Every word on the screen. Data goes to stdout through [`print`] and [`screen`], all else
//! to stderr through [`message`].
//!
//! - [`look`]: how wide, in which characters, in colour or not.
//! - [`line`], [`table`], [`value`], [`age`]: what tables are made of.
//! - [`whose`], [`idle`], [`mark`], [`loss`]: what is said of a process and of a device.
//! - [`view`]: the frame of `list`; [`gpus`] and [`processes`] are its tables.
//! - [`holders`], [`explain`]: who has GPUs open, and one process; [`finding`] says
//!   whose unexplained memory is.
//! - [`kill`]: who is meant, and what became of each.
//! - [`reset`]: what stands in the way of a reset, and what became of it.
//! - [`guard`]: who breaks rules, and what rules would have done.
//! - [`rules`]: what an edit of rules changes, and what is wrong in a file of them.
//! - [`rogue`]: who may be up to no good, and what to do about it.
//! - [`report`]: what a report of a bug needs.
//! - [`status`], [`history`], [`actions`], [`summary`]: the other answers, for
//!   people.
//! - [`json`], [`csv`]: the same for programs.
//! - [`export`]: records and copies in files; [`prune`]: what is deleted.
//! - [`screen`]: the terminal while `list --watch` has it.
//! - [`passing`]: one line on stderr while something is waited for.

pub(crate) mod look;

pub(crate) mod line;

pub(crate) mod table;

pub(crate) mod value;

mod age;

mod whose;

mod idle;

mod loss;

pub(crate) mod view;

mod mark;

mod gpus;

mod processes;

mod finding;

pub(crate) mod holders;

pub(crate) mod explain;

pub(crate) mod kill;

pub(crate) mod reset;

pub(crate) mod guard;

pub(crate) mod rogue;
pub(crate) mod rules;

pub(crate) mod report;

pub(crate) mod status;

pub(crate) mod history;

pub(crate) mod export;

pub(crate) mod prune;

pub(crate) mod actions;

pub(crate) mod summary;

pub(crate) mod json;

pub(crate) mod csv;

pub(crate) mod screen;

pub(crate) mod passing;

pub(crate) mod message;

#[cfg(test)]
pub(crate) mod sample;

#[cfg(test)]
mod tests;

use crate::exit::Failure;
use line::Line;
use look::Look;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

/// Prints lines for people.
pub(crate) fn print_lines(lines: &[Line], look: &Look) -> Result<(), Failure> {
    let mut text = String::with_capacity(128 * lines.len());
    for line in lines {
        line.paint_to(&mut text, look);
        text.push('\n');
    }
    print(&text)
}

/// Standard output as the file that it is: what is written in place goes around its buffer.
pub(crate) fn stdout_file() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Prints text as it is, at once.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}
