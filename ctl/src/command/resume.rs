//! `resume`: lets the daemon read the NVIDIA driver again before a quiesce ends.

use super::connect;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::output::print;
use crate::settings::Settings;

/// Requests it and prints the result.
pub(crate) fn run(settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, timeout, messages)?;
    call!(daemon, timeout, Resume {})?;
    print("gpukilld reads the NVIDIA driver\n")?;
    Ok(Exit::Done)
}
