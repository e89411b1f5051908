//! `explain`: all that is known of one process.

use super::{connect, list, now, scan_line};
use crate::args::Explain;
use crate::connect::{Daemon, RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::explain::{ExplainDetail, history_lines, lines};
use crate::output::past_end::past_end_text;
use crate::output::style::OutputStyle;
use crate::output::{print_answer, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::audit::{
    AuditFilter, AuditSummary, RunExtent, RunQuery, RunRecord, RunUnit, TimelineEvent,
    TimelineQuery,
};
use gpukill_proto::holders::Explanation;
use gpukill_proto::json::ExplainDocument;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// Requests the explanation and prints it.
pub(crate) fn run(wanted: &Explain, settings: &Settings) -> Result<Exit, Error> {
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let pid = wanted.process.pid();
    let line = &mut scan_line(settings);
    let explained = match call!(daemon, timeout, line, Explain { pid }) {
        Err(Error::Refused(Refusal::NoMatch(what))) => {
            Err(absence_error(what, pid, &daemon, settings))
        }
        // As for `holders`: there is no answer because a driver fails.
        Err(refused @ Error::Refused(Refusal::Unavailable(_))) => {
            let devices = list::select_devices(None, &daemon, timeout);
            Err(devices.err().unwrap_or(refused))
        }
        answer => answer,
    }?;
    let detail = match wanted.details {
        true => ExplainDetail::All,
        false => ExplainDetail::Usual,
    };
    print_answer(
        settings,
        || ExplainDocument::from(&explained),
        |style| lines(&explained, detail, style),
    )?;
    // A large history takes longer than all else.
    if settings.output_format != Format::Json
        && let Some(history) = request_history(&explained, &daemon, settings)
    {
        let style = OutputStyle::for_stdout(settings);
        print_lines(&history_lines(&history, explained.at, &style), &style)?;
    }
    Ok(Exit::Done)
}

/// How long an addition to the answer may take. The history of a month of a large host takes a
/// second.
const MAX_TIMEOUT: Duration = Duration::from_millis(500);

fn short_timeout(settings: &Settings) -> RequestTimeout {
    RequestTimeout::starting_now(settings.timeout.min(MAX_TIMEOUT))
}

/// The error for a process that uses no GPU, with the end of its use if that is recorded.
fn absence_error(what: String, pid: u32, daemon: &Daemon, settings: &Settings) -> Error {
    let ended_at = find_end(pid, daemon, settings);
    let Some(run) = ended_at.and_then(|at| request_run(pid, at, daemon, settings)) else {
        return Error::NoSuchProcess(what);
    };
    let style = OutputStyle::for_stdout(settings);
    let ended = past_end_text(&run, pid, now(), &style);
    let hint = format!("what happened before: gpukillctl audit timeline --pid {pid} --since 7d");
    Error::NotDone {
        what: format!("{what}\n  {ended}"),
        hint: Some(hint),
        exit: Exit::NoMatch,
    }
}

/// The most pages of the record to read for a process that has ended.
const MAX_PAGES: usize = 4;

/// When the process last left a GPU, within the week in which samples are kept.
fn find_end(pid: u32, daemon: &Daemon, settings: &Settings) -> Option<Timestamp> {
    const WEEK_SECONDS: i64 = 7 * 86_400;
    let now = now();
    let (mut from, mut ended_at) = (None, None);
    for _ in 0..MAX_PAGES {
        let query = TimelineQuery {
            since: now.plus_seconds(-WEEK_SECONDS),
            until: now.plus_seconds(1),
            gpu: None,
            user: None,
            job: None,
            pid: Some(pid),
            from,
            limit: 1_000,
        };
        let page = call!(daemon, short_timeout(settings), Timeline { query }).ok()?;
        // The pages go forward in time, and pids are used again.
        for entry in page.entries {
            if matches!(&entry.event, TimelineEvent::Ended(process, _) if process.pid == pid) {
                ended_at = Some(entry.at);
            }
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    ended_at
}

/// The run of a process that left a GPU at this time.
fn request_run(
    pid: u32,
    ended_at: Timestamp,
    daemon: &Daemon,
    settings: &Settings,
) -> Option<RunRecord> {
    // The last sample of a run is somewhat older than its end.
    let filter = AuditFilter::for_period(ended_at.plus_seconds(-300), ended_at.plus_seconds(60));
    let mut before = None;
    for _ in 0..MAX_PAGES {
        let query = RunQuery {
            filter: filter.clone(),
            unit: RunUnit::Process,
            extent: RunExtent::Whole,
            before,
            limit: 1_000,
        };
        let page = call!(daemon, short_timeout(settings), AuditRuns { query }).ok()?;
        let mut runs = page.runs.into_iter();
        if let Some(run) = runs.find(|run| run.pids.contains(&pid)) {
            return Some(run);
        }
        before = Some(page.next?);
    }
    None
}

/// The usage of the job since the process was first seen; `None` where it cannot be had soon: the
/// history is an addition.
fn request_history(
    explained: &Explanation,
    daemon: &Daemon,
    settings: &Settings,
) -> Option<AuditSummary> {
    let (_, process) = explained.uses.first()?;
    let owner = process.owner.last_known();
    let first_seen = *process.first_seen.last_known()?;
    let filter = AuditFilter {
        user: owner.and_then(|owner| owner.uid).map(|uid| uid.to_string()),
        job: Some(process.job.last_known()?.to_string()),
        ..AuditFilter::for_period(first_seen, explained.at)
    };
    call!(daemon, short_timeout(settings), AuditSummary { filter }).ok()
}
