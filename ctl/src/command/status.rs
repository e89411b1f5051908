//! `status`: how the daemon stands, and what the caller may do.

mod report;

pub(super) use report::despite as report_despite;

use super::connect;
use crate::args::Status;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::guard::own_jobs;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::status::lines;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::document::StatusDocument;
use gpukill_proto::guard::GuardMode;

/// Asks and prints.
pub(crate) fn run(
    wanted: &Status,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    if wanted.report {
        return report::run(settings, messages);
    }
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let status = daemon.status(patience)?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&StatusDocument::from(&status))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            let mut lines = lines(&status, env!("CARGO_PKG_VERSION"), &look);
            if status.guard.mode > GuardMode::DryRun && status.guard.open > 0 {
                // How the daemon stands is worth showing without it.
                if let Ok(sight) = daemon.snapshot(None, patience) {
                    lines.extend(own_jobs(&sight, status.caller.uid, status.now, &look));
                }
            }
            print_lines(&lines, &look)?;
        }
    }
    Ok(Exit::Done)
}
