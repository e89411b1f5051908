//! `audit prune`: says what is old, asks, and has it deleted.

use super::{confirm, connect, now};
use crate::args::Prune;
use crate::connect::{Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::moment;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::prune::{Tense, counted, lines, question};
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use chrono::Local;
use gpukill_proto::audit::PruneReport;
use gpukill_proto::document::PruneDocument;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// Deleting goes in small steps, so that nothing else waits: a month of a large
/// box takes some seconds. The daemon takes no longer deadline than this.
const DELETING: Duration = Duration::from_secs(110);

/// Does it, or says why not.
pub(super) fn run(
    wanted: &Prune,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let before = moment::parse(&wanted.before, now(), &Local).map_err(Failure::Usage)?;
    let patience = || Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience(), messages)?;
    let planned = daemon.prune(before, Doing::Saying, patience())?;
    if wanted.dry_run {
        show(&planned, before, Tense::Would, settings)?;
        return Ok(Exit::Done);
    }
    if counted(&planned.deleted).is_none() {
        show(&planned, before, Tense::Done, settings)?;
        return Ok(Exit::Done);
    }
    let daemon = if wanted.yes {
        daemon
    } else {
        // The daemon hangs up on who is silent, and a person may take their time.
        drop(daemon);
        ask(&planned, before, settings, messages)?;
        connect(settings, patience(), messages)?
    };
    let patience = Patience::lasting(settings.timeout.max(DELETING));
    let report = daemon.prune(before, Doing::Doing, patience)?;
    show(&report, before, Tense::Done, settings)?;
    Ok(Exit::Done)
}

/// Says what goes and asks; a no is a failure, for what was wanted is not done.
fn ask(
    planned: &PruneReport,
    before: Timestamp,
    settings: &Settings,
    messages: Messages,
) -> Result<(), Failure> {
    match settings.output_format {
        // A program reads one document, and that is of what was done.
        Format::Json if confirm::can_ask() => {
            let look = Look {
                color: false,
                ..Look::of_stdout(settings)
            };
            for line in lines(planned, before, Tense::Would, &look) {
                messages.of_a_question(&line.paint(&look));
            }
        }
        Format::Json | Format::Table | Format::Ndjson | Format::Csv => {
            show(planned, before, Tense::Would, settings)?;
        }
    }
    confirm::must_agree(&question(planned), "nothing was deleted")
}

/// Prints it, in the form that was asked for.
fn show(
    report: &PruneReport,
    before: Timestamp,
    tense: Tense,
    settings: &Settings,
) -> Result<(), Failure> {
    match settings.output_format {
        Format::Json => {
            let document = PruneDocument::new(report, before, tense == Tense::Done);
            print(&json::pretty(&document)?)
        }
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&lines(report, before, tense, &look), &look)
        }
    }
}
