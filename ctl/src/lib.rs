//! The client of gpukilld: asks over its socket, and prints the answer.
//!
//! Read in this order:
//! - [`args`], `settings`: what was typed, and what it means together with the
//!   environment and the settings file.
//! - [`exit`]: how a run can end, and the one mapping from failures to exit codes.
//! - `versions`: client and daemon of different ones.
//! - `here`: what the client sees of the box itself, for a report.
//! - `connect`: which socket, how long to wait, when to try again.
//! - `command`: one file for each command.
//! - `moment`: the times that people type.
//! - [`rules_files`]: rules from JSON and YAML, and to them.
//! - [`convert`]: the program gpukill-convert, for Parquet and YAML; `converter`: its start.
//! - `output`: every word on the screen. Nothing else prints.
//!
//! The client opens no GPU, no database, and no file of another user but what everybody
//! reads of the system (`here`).
#![forbid(unsafe_code)]

pub mod args;

mod settings;

pub mod exit;

mod versions;

mod here;

mod connect;

mod command;

mod moment;

mod output;

pub mod rules_files;

pub mod convert;

mod converter;

use args::{Cli, Command};
use exit::{Exit, Failure, Runs};
use output::message::Messages;
pub use settings::{Told, told};
use std::ffi::OsString;

/// Does what the command line asks, and says how that ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let (cli, path) = match args::parse(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return output::message::usage(error),
    };
    let mut messages = Messages::default();
    let exit = match attempt(&cli, &mut messages) {
        Ok(exit) => exit,
        Err(failure) => {
            messages.failure(&failure);
            failure.exit()
        }
    };
    // The manual tells those of each command; every test that runs one holds it to that.
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    debug_assert!(exit::of(&path).contains(&exit), "{path:?}: {exit:?}");
    exit
}

fn attempt(cli: &Cli, messages: &mut Messages) -> Result<Exit, Failure> {
    // Completions need no settings, so a mistake in those must not stop them.
    if let Command::Completions(wanted) = &cli.command {
        return command::completions::run(wanted);
    }
    let settings = match settings::load(cli) {
        Ok(settings) => settings,
        Err(failure) => return Err(command::despite(&cli.command, cli.into(), failure)),
    };
    // Where none is to be found, that is what is said.
    let socket = connect::choose(settings.socket.as_deref()).unwrap_or_default();
    *messages = Messages::new(settings.log_level, Runs::at(&socket));
    command::run(&cli.command, &settings, *messages)
}
