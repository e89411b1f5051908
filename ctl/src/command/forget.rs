//! `forget`: removes GPUs that are gone from the list.

use super::connect;
use crate::args::Forget;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::output::print;
use crate::settings::Settings;

/// Requests the removal and prints the removed GPUs.
pub(crate) fn run(wanted: &Forget, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, timeout, messages)?;
    let gpu = wanted.gpu.clone();
    for device in call!(daemon, timeout, ForgetGpus { gpu })? {
        let (index, id) = (device.index, device.id.0);
        print(&format!("GPU {index} ({id}) is not listed any more\n"))?;
    }
    Ok(Exit::Done)
}
