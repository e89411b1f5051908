//! `explain`: all that is known of one process.

use super::{connect, list};
use crate::args::Explain;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::explain::lines;
use crate::output::message::Messages;
use crate::output::style::OutputStyle;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::json::ExplainDocument;
use gpukill_proto::refusal::Refusal;

/// Requests the explanation and prints it.
pub(crate) fn run(
    wanted: &Explain,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Error> {
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, timeout, messages)?;
    let pid = wanted.process.pid();
    let explained = match call!(daemon, timeout, Explain { pid }) {
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
        }
    }
    Ok(Exit::Done)
}
