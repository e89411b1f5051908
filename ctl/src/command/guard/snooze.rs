//! Asks for more time before a job is ended.

use super::connect;
use crate::args::Snooze;
use crate::connect::{Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_proto::units::Timestamp;
use std::time::SystemTime;

/// Asks for it, or for what that would come to.
pub(super) fn run(
    wanted: &Snooze,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let doing = if wanted.dry_run {
        Doing::Saying
    } else {
        Doing::Doing
    };
    let patience = Patience::lasting(settings.timeout);
    let snoozed = daemon.snooze(wanted.pid, doing, patience)?;
    let look = Look::of_stdout(settings);
    let now: Timestamp = SystemTime::now().into();
    print_lines(&guard::snoozed(&snoozed, doing, now, &look), &look)?;
    Ok(Exit::Done)
}
