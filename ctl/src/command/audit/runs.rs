//! `audit`: the runs of jobs or processes.

use super::{collect_pages, entry_limit, run_list};
use crate::args::Audit;
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::audit::history::{Coverage, RecordPrinter, Remaining};
use crate::settings::Settings;
use gpukill_proto::audit::{AuditFilter, RunExtent, RunQuery, RunRecord, RunUnit};

/// Requests runs page by page and prints them.
pub(super) fn run(audit: &Audit, settings: &Settings) -> Result<Exit, Error> {
    run_list(audit, settings, "run", |daemon, filter, runs| {
        request_pages(daemon, audit, filter, settings, runs)
    })
}

fn request_pages(
    daemon: &Daemon,
    audit: &Audit,
    filter: &AuditFilter,
    settings: &Settings,
    runs: &mut RecordPrinter<RunRecord>,
) -> Result<Remaining, Error> {
    collect_pages(
        entry_limit(audit.limit, settings.output_format),
        &mut |before, limit| {
            let query = RunQuery {
                filter: filter.clone(),
                unit: if audit.processes {
                    RunUnit::Process
                } else {
                    RunUnit::Job
                },
                extent: RunExtent::Whole,
                before,
                limit,
            };
            let page = call!(daemon, settings.request_timeout(), AuditRuns { query })?;
            if before.is_none() {
                runs.set_coverage(Coverage {
                    gaps: Some(page.gaps),
                    recorded_since: page.recorded_since,
                });
            }
            let count = page.runs.len();
            runs.add(page.runs)?;
            Ok((count, page.next))
        },
    )
}
