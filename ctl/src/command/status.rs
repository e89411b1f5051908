//! `status`: the state of the daemon, and what the caller may do.

mod report;

pub(super) use report::run_without_settings as report_without_settings;

use super::connect;
use crate::args::Status;
use crate::connect::call;
use crate::exit::{Error, Exit};
use crate::output::guard::own_job_lines;
use crate::output::print_answer;
use crate::output::status::lines;
use crate::settings::Settings;
use gpukill_policy::health::is_program_fault;
use gpukill_proto::guard::GuardMode;
use gpukill_proto::json::StatusDocument;
use gpukill_proto::status::DaemonStatus;

/// Requests the status and prints it.
pub(crate) fn run(wanted: &Status, settings: &Settings) -> Result<Exit, Error> {
    if wanted.report {
        return report::run(settings);
    }
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let status = call!(daemon, timeout, Status {})?;
    print_answer(
        settings,
        || StatusDocument::from(&status),
        |style| {
            // The status is worth showing without the caller's own jobs and the times of XIDs.
            let annotated = match has_own_jobs(&status) || has_xids(&status) {
                true => daemon.snapshot(None, timeout).ok(),
                false => None,
            };
            let devices = annotated.as_ref().map(|it| it.snapshot.devices.as_slice());
            let devices = devices.unwrap_or_default();
            let mut lines = lines(&status, devices, env!("CARGO_PKG_VERSION"), style);
            if let Some(annotated) = annotated.filter(|_| has_own_jobs(&status)) {
                let uid = status.caller.uid;
                lines.extend(own_job_lines(&annotated, uid, status.now, style));
            }
            lines
        },
    )?;
    Ok(Exit::Done)
}

/// Whether the guard may be about to end jobs of the caller.
fn has_own_jobs(status: &DaemonStatus) -> bool {
    status.guard.mode > GuardMode::DryRun && status.guard.open > 0
}

/// Whether a GPU had an XID that is no program's fault.
fn has_xids(status: &DaemonStatus) -> bool {
    let mut xids = status.counters.xids.iter();
    xids.any(|counted| counted.xid.is_none_or(|code| !is_program_fault(code)))
}
