//! `quiesce`, `resume` and `forget`: which drivers and GPUs the daemon reads.

use super::{connect, now};
use crate::args::{Forget, Quiesce};
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::print;
use crate::output::style::OutputStyle;
use crate::output::value::future_time;
use crate::settings::Settings;
use std::time::Duration;

/// The daemon answers when the driver is released. It allows 30 s for that: the time for a
/// driver's answer and for the end of the sensor.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(40);

/// Lets the daemon release the NVIDIA driver for a while, and prints the end of the quiesce.
pub(super) fn quiesce(wanted: &Quiesce, settings: &Settings) -> Result<Exit, Error> {
    let daemon = connect(settings, settings.request_timeout())?;
    let timeout = RequestTimeout::starting_now(settings.timeout.max(QUIESCE_TIMEOUT));
    let seconds = wanted.minutes * 60;
    let until = call!(daemon, timeout, Quiesce { seconds })?;
    let until = future_time(until, now(), &OutputStyle::for_stdout(settings));
    print(&format!(
        "the NVIDIA driver is released until {until}; the list shows the last readings\n"
    ))?;
    let messages = settings.messages();
    messages.hint("gpukillctl resume when you are done");
    Ok(Exit::Done)
}

/// Lets the daemon read the NVIDIA driver again before a quiesce ends.
pub(super) fn resume(settings: &Settings) -> Result<Exit, Error> {
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    call!(daemon, timeout, Resume {})?;
    print("gpukilld reads the NVIDIA driver\n")?;
    Ok(Exit::Done)
}

/// Removes GPUs that are gone from the list, and prints them.
pub(super) fn forget(wanted: &Forget, settings: &Settings) -> Result<Exit, Error> {
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let gpu = wanted.gpu.clone();
    let forgotten = call!(daemon, timeout, ForgetGpus { gpu })?;
    for device in forgotten {
        let (index, id) = (device.index, device.id.0);
        print(&format!("GPU {index} ({id}) is not listed any more\n"))?;
    }
    Ok(Exit::Done)
}
