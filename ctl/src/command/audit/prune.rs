//! `audit prune`: shows what is old, asks, and lets the daemon delete it.

use super::archive::{ArchiveDirectory, archived_history, request_status};
use super::{confirm, connect, now};
use crate::archive::check_host;
use crate::args::Prune;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::audit::prune::{PruneTense, contents_text, lines, question};
use crate::output::message::question_subject;
use crate::output::print_answer;
use crate::output::style::OutputStyle;
use crate::settings::{Format, Settings};
use crate::time_input;
use chrono::Local;
use gpukill_proto::audit::PruneReport;
use gpukill_proto::json::PruneDocument;
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

/// The daemon deletes in small steps, so that nothing else waits. A month of a large host takes
/// some seconds. The daemon accepts no later deadline than this.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(110);

/// Runs the prune or its dry run.
pub(super) fn run(wanted: &Prune, settings: &Settings) -> Result<Exit, Error> {
    let before = match (&wanted.before, &wanted.archived) {
        (_, Some(directory)) => archived_before(directory, settings)?,
        (before, None) => {
            let before = before.as_deref().unwrap_or_default();
            time_input::parse(before, now(), &Local).map_err(Error::Usage)?
        }
    };
    let timeout = || settings.request_timeout();
    let daemon = connect(settings, timeout())?;
    let is_dry_run = true;
    let planned = call!(daemon, timeout(), Prune { before, is_dry_run })?;
    if wanted.dry_run {
        print_report(&planned, before, PruneTense::Would, settings)?;
        return Ok(Exit::Done);
    }
    if contents_text(&planned.deleted).is_none() {
        print_report(&planned, before, PruneTense::Done, settings)?;
        return Ok(Exit::Done);
    }
    let daemon = if wanted.yes {
        daemon
    } else {
        // The daemon hangs up on an idle connection, and a person may take time to answer.
        drop(daemon);
        confirm_prune(&planned, before, settings)?;
        connect(settings, timeout())?
    };
    let timeout = RequestTimeout::starting_now(settings.timeout.max(PRUNE_TIMEOUT));
    let is_dry_run = false;
    let report = call!(daemon, timeout, Prune { before, is_dry_run })?;
    print_report(&report, before, PruneTense::Done, settings)?;
    Ok(Exit::Done)
}

/// The time before which everything is archived in this directory.
fn archived_before(directory: &Path, settings: &Settings) -> Result<Timestamp, Error> {
    let status = request_status(settings)?;
    let host = check_host(&status.host).map_err(Error::Usage)?;
    let archive = ArchiveDirectory::open(directory, host)?;
    let daemon = connect(settings, settings.request_timeout())?;
    match archived_history(&daemon, &archive, status.now, settings)? {
        Ok(archived) => {
            if let Some(missing) = &archived.missing {
                settings.messages().warn(&format!("not deleted: {missing}"));
            }
            Ok(archived.until)
        }
        Err(missing) => Err(Error::NotDone {
            what: format!("nothing was deleted: {missing}"),
            hint: Some(format!(
                "archive it first: gpukillctl audit archive {}; if it is archived already, use a new \
                 directory",
                directory.display()
            )),
            exit: Exit::Failed,
        }),
    }
}

/// Shows what would be deleted and asks. The answer no is an error, because nothing is done.
fn confirm_prune(
    planned: &PruneReport,
    before: Timestamp,
    settings: &Settings,
) -> Result<(), Error> {
    match settings.output_format {
        // A program reads one document only: the report on what was done.
        Format::Json if confirm::can_ask() => {
            let style = OutputStyle {
                color: false,
                ..OutputStyle::for_stdout(settings)
            };
            for line in lines(planned, before, PruneTense::Would, &style) {
                question_subject(&line.paint(&style));
            }
        }
        Format::Json | Format::Table | Format::Ndjson | Format::Csv => {
            print_report(planned, before, PruneTense::Would, settings)?;
        }
    }
    confirm::require_agreement(&question(planned), "nothing was deleted")
}

/// Prints the report in the requested format.
fn print_report(
    report: &PruneReport,
    before: Timestamp,
    tense: PruneTense,
    settings: &Settings,
) -> Result<(), Error> {
    print_answer(
        settings,
        || PruneDocument::new(report, before, tense == PruneTense::Done),
        |style| lines(report, before, tense, style).into(),
    )
}
