//! `guard snooze`: postpones the end of a job.

use super::connect;
use crate::args::Snooze;
use crate::connect::{Mode, RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::output::style::OutputStyle;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_proto::units::Timestamp;
use std::time::SystemTime;

/// Requests the snooze, or shows its effect.
pub(super) fn run(wanted: &Snooze, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let daemon = connect(
        settings,
        RequestTimeout::starting_now(settings.timeout),
        messages,
    )?;
    let (pid, is_dry_run) = (wanted.pid, wanted.dry_run);
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let snoozed = call!(daemon, timeout, Snooze { pid, is_dry_run })?;
    let mode = Mode::from_dry_run(is_dry_run);
    let look = OutputStyle::for_stdout(settings);
    let now: Timestamp = SystemTime::now().into();
    print_lines(&guard::snooze_lines(&snoozed, mode, now, &look), &look)?;
    Ok(Exit::Done)
}
