//! `status`: the state of the daemon, and what the caller may do.

mod report;

pub(super) use report::run_without_settings as report_without_settings;

use super::connect;
use crate::args::Status;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::guard::own_job_lines;
use crate::output::message::Messages;
use crate::output::status::lines;
use crate::output::style::OutputStyle;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::guard::GuardMode;
use gpukill_proto::json::StatusDocument;

/// Requests the status and prints it.
pub(crate) fn run(wanted: &Status, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    if wanted.report {
        return report::run(settings, messages);
    }
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, timeout, messages)?;
    let status = call!(daemon, timeout, Status {})?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&StatusDocument::from(&status))?)?,
        // Only the settings can select formats that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let style = OutputStyle::for_stdout(settings);
            let mut lines = lines(&status, env!("CARGO_PKG_VERSION"), &style);
            if status.guard.mode > GuardMode::DryRun && status.guard.open > 0 {
                // The status is worth showing without the caller's own jobs.
                if let Ok(annotated) = daemon.snapshot(None, timeout) {
                    lines.extend(own_job_lines(
                        &annotated,
                        status.caller.uid,
                        status.now,
                        &style,
                    ));
                }
            }
            print_lines(&lines, &style)?;
        }
    }
    Ok(Exit::Done)
}
