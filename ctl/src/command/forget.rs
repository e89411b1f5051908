//! `forget`: drops the rows of GPUs that are gone.

use super::connect;
use crate::args::Forget;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::output::print;
use crate::settings::Settings;

/// Asks, and says which GPUs are not listed any more.
pub(crate) fn run(
    wanted: &Forget,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    for device in daemon.forget_gpus(&wanted.gpu, patience)? {
        let (index, id) = (device.index, device.id.0);
        print(&format!("GPU {index} ({id}) is not listed any more\n"))?;
    }
    Ok(Exit::Done)
}
