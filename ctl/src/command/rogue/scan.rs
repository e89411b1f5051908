//! `rogue scan`: who may be up to no good, now and lately. What was found is an answer, so
//! that it ends as if nothing were.

use super::{connect, now};
use crate::args::Scan;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{json, print, print_lines, rogue};
use crate::settings::{Format, Settings};
use std::time::Duration;

/// A month of a large box takes seconds, and where others look at the past too, longer.
const LOOKING_BACK: Duration = Duration::from_secs(60);

/// Asks and prints.
pub(super) fn run(wanted: &Scan, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let patience = Patience::lasting(settings.timeout.max(LOOKING_BACK));
    let report = daemon.scan(wanted.hours, patience)?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&rogue::document(&report))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&rogue::scanned(&report, now(), &look), &look)?;
        }
    }
    Ok(Exit::Done)
}
