//! `rogue scan`: suspicious processes, current and recent. The exit code does not depend on
//! whether there are findings.

use super::{connect, now};
use crate::args::Scan;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::output::style::OutputStyle;
use crate::output::{json, print, print_lines, rogue};
use crate::settings::{Format, Settings};
use std::time::Duration;

/// A month of a large box takes seconds, and longer when other clients read the history too.
const HISTORY_SCAN_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests the scan and prints it.
pub(super) fn run(wanted: &Scan, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let daemon = connect(
        settings,
        RequestTimeout::starting_now(settings.timeout),
        messages,
    )?;
    let timeout = RequestTimeout::starting_now(settings.timeout.max(HISTORY_SCAN_TIMEOUT));
    let hours = wanted.hours;
    let report = call!(daemon, timeout, Scan { hours })?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&rogue::document(&report))?)?,
        // Only the settings can select formats that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = OutputStyle::for_stdout(settings);
            print_lines(&rogue::scan_lines(&report, now(), &look), &look)?;
        }
    }
    Ok(Exit::Done)
}
