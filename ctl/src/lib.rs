//! The client of gpukilld: sends requests over its socket and prints the answers.
//!
//! Read in this order:
//! - [`args`], `settings`: the command line, and its meaning together with the environment and
//!   the settings file.
//! - [`exit`]: exit codes, and the one mapping from errors to them.
//! - `versions`: client and daemon of different versions.
//! - `host_facts`: facts about the host, for a report.
//! - `connect`: which socket, how long to wait, when to try again.
//! - `command`: one file for each command.
//! - `time_input`: parses typed times.
//! - [`archive`]: the days, the kinds and the manifest of an archive.
//! - [`rules_files`]: converts rules from and to JSON and YAML.
//! - [`convert`]: the program gpukill-convert, for Parquet and YAML; `convert_program` starts
//!   it.
//! - `output`: every word on the screen. Nothing else prints.
//!
//! The client opens no GPU and no database. Of other users' files it reads only system files
//! that everybody may read (`host_facts`).
#![forbid(unsafe_code)]

pub mod archive;
pub mod args;
mod command;
mod connect;
pub mod convert;
mod convert_program;
pub mod exit;
mod host_facts;
mod output;
pub mod rules_files;
mod settings;
mod time_input;
mod versions;

use args::{Cli, Command};
use exit::{DaemonKind, Error, Exit};
use output::message::Messages;
use settings::Settings;
pub use settings::{SettingDoc, setting_docs};
use std::ffi::OsString;

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let (cli, path) = match args::parse(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return output::message::print_usage(error),
    };
    let (messages, daemon_kind, result) = run_command(&cli);
    let exit = result.unwrap_or_else(|failure| {
        messages.error(&failure, daemon_kind);
        failure.exit_code()
    });
    // The manual lists the codes of each command; every test that runs a command checks the
    // list.
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    debug_assert!(
        exit::command_exit_codes(&path).contains(&exit),
        "{path:?}: {exit:?}"
    );
    exit
}

/// Runs the command. The result comes with what its error is printed with.
fn run_command(cli: &Cli) -> (Messages, DaemonKind, Result<Exit, Error>) {
    let early = |result| (Settings::default().messages(), DaemonKind::Manual, result);
    // Completions need no settings, so mistakes in the settings must not stop them.
    if let Command::Completions(wanted) = &cli.command {
        return early(command::print_completions(wanted));
    }
    let settings = match settings::load(cli) {
        Ok(settings) => settings,
        Err(failure) => {
            let failure = command::run_without_settings(&cli.command, cli.into(), failure);
            return early(Err(failure));
        }
    };
    // A missing socket is reported later, by the command.
    let socket = connect::choose_socket(settings.socket.as_deref()).unwrap_or_default();
    let daemon_kind = DaemonKind::from_socket(&socket);
    let result = command::run(&cli.command, &settings);
    (settings.messages(), daemon_kind, result)
}
