//! `explain`: all that is known of one process.

use super::{connect, list, looking};
use crate::args::Explain;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::explain::lines;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::document::ExplainDocument;
use gpukill_proto::refusal::Refusal;

/// Asks and prints.
pub(crate) fn run(
    wanted: &Explain,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let explained = match daemon.explain(wanted.pid, looking(settings)) {
        Err(Failure::Refused(Refusal::NoMatch(what))) => Err(Failure::NoSuchProcess(what)),
        // As for `holders`: a driver that fails is why there is no answer.
        Err(refused @ Failure::Refused(Refusal::Unavailable(_))) => {
            let devices = list::devices(None, &daemon, patience);
            Err(devices.err().unwrap_or(refused))
        }
        answer => answer,
    }?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&ExplainDocument::from(&explained))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&lines(&explained, &look), &look)?;
        }
    }
    Ok(Exit::Done)
}
