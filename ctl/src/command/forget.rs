//! `forget`: removes GPUs that are gone from the list.

use super::connect;
use crate::args::Forget;
use crate::connect::RequestTimeout;
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::output::print;
use crate::settings::Settings;

/// Requests the removal and prints the removed GPUs.
pub(crate) fn run(wanted: &Forget, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let patience = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    for device in daemon.forget_gpus(&wanted.gpu, patience)? {
        let (index, id) = (device.index, device.id.0);
        print(&format!("GPU {index} ({id}) is not listed any more\n"))?;
    }
    Ok(Exit::Done)
}
