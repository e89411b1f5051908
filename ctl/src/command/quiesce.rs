//! `quiesce`: the daemon lets go of the NVIDIA driver for a while.

use super::{connect, now};
use crate::args::Quiesce;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::print;
use crate::output::value::minute;
use crate::settings::Settings;
use std::time::Duration;

/// The daemon answers when the driver is let go, and gives that 30 s: as long as
/// a driver may take for an answer, and the sensor for its end.
const LETTING_GO: Duration = Duration::from_secs(40);

/// Asks, and says until when it holds.
pub(crate) fn run(
    wanted: &Quiesce,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let patience = Patience::lasting(settings.timeout.max(LETTING_GO));
    let until = daemon.quiesce(wanted.minutes * 60, patience)?;
    let until = minute(until, now(), &Look::of_stdout(settings));
    print(&format!(
        "the NVIDIA driver is let go until {until}; the list shows the last readings\n"
    ))?;
    messages.hint("gpukillctl resume when you are done");
    Ok(Exit::Done)
}
