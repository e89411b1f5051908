//! `resume`: the daemon reads the NVIDIA driver, before a quiesce is over.

use super::connect;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::output::print;
use crate::settings::Settings;

/// Asks, and says what is so now.
pub(crate) fn run(settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    daemon.resume(patience)?;
    print("gpukilld reads the NVIDIA driver\n")?;
    Ok(Exit::Done)
}
