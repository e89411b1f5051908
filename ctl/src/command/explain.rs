//! `explain`: all that is known of one process.

use super::{connect, list, scan_line};
use crate::args::Explain;
use crate::connect::{Daemon, RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::explain::{history_lines, lines};
use crate::output::message::Messages;
use crate::output::style::OutputStyle;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::audit::{AuditFilter, AuditSummary};
use gpukill_proto::holders::Explanation;
use gpukill_proto::json::ExplainDocument;
use gpukill_proto::refusal::Refusal;
use std::time::Duration;

/// Requests the explanation and prints it.
pub(crate) fn run(
    wanted: &Explain,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Error> {
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, timeout, messages)?;
    let pid = wanted.process.pid();
    let line = &mut scan_line(settings);
    let explained = match call!(daemon, timeout, line, Explain { pid }) {
        Err(Error::Refused(Refusal::NoMatch(what))) => Err(Error::NoSuchProcess(what)),
        // As for `holders`: there is no answer because a driver fails.
        Err(refused @ Error::Refused(Refusal::Unavailable(_))) => {
            let devices = list::select_devices(None, &daemon, timeout);
            Err(devices.err().unwrap_or(refused))
        }
        answer => answer,
    }?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&ExplainDocument::from(&explained))?)?,
        // Only the settings can select formats that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let style = OutputStyle::for_stdout(settings);
            print_lines(&lines(&explained, &style), &style)?;
            // A large history takes longer than all else.
            if let Some(history) = request_history(&explained, &daemon, settings) {
                print_lines(&history_lines(&history, explained.at, &style), &style)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// The usage of the job since the process was first seen; `None` where it cannot be had soon: the
/// history is an addition.
fn request_history(
    explained: &Explanation,
    daemon: &Daemon,
    settings: &Settings,
) -> Option<AuditSummary> {
    /// The history of a month of a large host takes a second.
    const MAX_TIMEOUT: Duration = Duration::from_millis(500);
    let (_, process) = explained.uses.first()?;
    let owner = process.owner.last_known();
    let filter = AuditFilter {
        since: *process.first_seen.last_known()?,
        until: explained.at,
        user: owner.and_then(|owner| owner.uid).map(|uid| uid.to_string()),
        process: None,
        gpu: None,
        container: None,
        job: Some(process.job.last_known()?.to_string()),
    };
    let timeout = RequestTimeout::starting_now(settings.timeout.min(MAX_TIMEOUT));
    call!(daemon, timeout, AuditSummary { filter }).ok()
}
