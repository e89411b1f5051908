//! Every word on the screen. Data goes to stdout through [`print`] and [`list::screen`],
//! everything else to stderr through [`message`].
//!
//! - [`style`]: width, characters and colours.
//! - [`text`], [`table`], [`value`], [`age`]: the parts of tables.
//! - [`owner_cells`], [`markers`], [`loss`]: texts about a process or a device.
//! - [`json`], [`csv`]: the formats for programs.
//! - [`spinner`]: one line on stderr during a wait.
//!
//! Each other module has the answers of the command with its name.

mod age;
pub(crate) mod audit;
pub(crate) mod csv;
pub(crate) mod explain;
#[cfg(test)]
#[path = "../tests/support/fixtures.rs"]
pub(crate) mod fixtures;
pub(crate) mod guard;
pub(crate) mod holders;
pub(crate) mod json;
pub(crate) mod kill;
pub(crate) mod list;
mod loss;
mod markers;
pub(crate) mod message;
mod owner_cells;
pub(crate) mod past_end;
pub(crate) mod reset;
pub(crate) mod rogue;
pub(crate) mod spinner;
pub(crate) mod status;
pub(crate) mod style;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod value;

use crate::exit::Error;
use crate::settings::{Format, Settings};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use style::OutputStyle;
use text::Line;

/// Prints an answer: a document for programs, or lines for people. Only the settings can select a
/// format that the command does not have; then it prints lines.
pub(crate) fn print_answer<D: Serialize>(
    settings: &Settings,
    document: impl FnOnce() -> D,
    lines: impl FnOnce(&OutputStyle) -> Vec<Line>,
) -> Result<(), Error> {
    match settings.output_format {
        Format::Json => print(&json::pretty(&document())?),
        Format::Table | Format::Ndjson | Format::Csv => {
            let style = OutputStyle::for_stdout(settings);
            print_lines(&lines(&style), &style)
        }
    }
}

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
