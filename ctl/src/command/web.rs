//! `web`: becomes the gateway of the person who runs it, which is a program of its own. It acts with
//! this person's rights, and ends with the terminal.

use crate::args::Web;
use crate::connect::choose_socket;
use crate::convert_program::find_program;
use crate::exit::{Error, Exit, system_error_reason};
use crate::settings::Settings;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const PROGRAM_NAME: &str = "gpukill-gateway";

/// Becomes the program; returns only if that fails.
pub(super) fn run(wanted: &Web, settings: &Settings) -> Result<Exit, Error> {
    let socket = choose_socket(settings.socket.as_deref())?;
    let path = find_program(PROGRAM_NAME).ok_or_else(|| Error::NotDone {
        what: format!("{PROGRAM_NAME} is not installed"),
        hint: Some("install the package gpukill-gateway".to_owned()),
        exit: Exit::NotSupported,
    })?;
    let mut command = Command::new(&path);
    command.arg("--personal").arg("--socket").arg(socket);
    // The C library otherwise keeps what threads have freed, for each thread.
    command.env("MALLOC_ARENA_MAX", "2");
    if let Some(port) = wanted.port {
        command.arg("--port").arg(port.to_string());
    }
    if wanted.open {
        command.arg("--open");
    }
    let error = command.exec();
    Err(Error::NotDone {
        what: format!(
            "cannot start {}: {}",
            path.display(),
            system_error_reason(&error)
        ),
        hint: None,
        exit: Exit::Failed,
    })
}
