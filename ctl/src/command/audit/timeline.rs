//! `audit timeline`: everything that happened to a GPU, job, process or user.

use super::{
    DEFAULT_HOURS, ListSelection, collect_pages, connect, entry_limit, finish_records, now,
    time_span,
};
use crate::args::Timeline;
use crate::connect::call;
use crate::exit::{Error, Exit};
use crate::output::audit::history::RecordPrinter;
use crate::output::audit::timeline::TimelineItem;
use crate::output::style::OutputStyle;
use crate::settings::{Format, Settings};
use gpukill_proto::audit::TimelineQuery;
use std::cmp::Reverse;

/// Requests entries page by page and prints them.
pub(super) fn run(wanted: &Timeline, settings: &Settings) -> Result<Exit, Error> {
    let span = time_span(&wanted.period, DEFAULT_HOURS, now()).map_err(Error::Usage)?;
    let daemon = connect(settings, settings.request_timeout())?;
    let style = OutputStyle::for_stdout(settings);
    let mut printer = RecordPrinter::<TimelineItem>::new(settings.output_format, span, style);
    let mut stretches_omitted = false;
    let limit = entry_limit(wanted.limit, settings.output_format);
    // These pages go forward in time.
    let outcome = collect_pages(limit, &mut |from: Option<Reverse<_>>, limit| {
        let query = TimelineQuery {
            since: span.since,
            until: span.until,
            gpu: wanted.gpu.clone(),
            user: wanted.user.clone(),
            job: wanted.job.clone(),
            pid: wanted.pid,
            from: from.map(|Reverse(from)| from),
            limit,
        };
        let page = call!(daemon, settings.request_timeout(), Timeline { query })?;
        let count = page.entries.len();
        stretches_omitted |= page.stretches_omitted;
        printer.add(page.entries.into_iter().map(TimelineItem::new).collect())?;
        Ok((count, page.next.map(Reverse)))
    });
    printer.set_stretches_omitted(stretches_omitted);
    let is_narrowed = wanted.gpu.is_some()
        || wanted.user.is_some()
        || wanted.job.is_some()
        || wanted.pid.is_some();
    let selection = ListSelection {
        one: "entry",
        is_narrowed,
        users: wanted.user.as_deref().unwrap_or_default(),
        groups: "",
    };
    let count = finish_records(printer, outcome, &selection)?;
    if settings.output_format == Format::Table && stretches_omitted && count > 0 {
        settings.messages().notice(
            "for busy and idle times, name one GPU, job, process or user with at most 64 runs of \
             processes in this time",
        );
    }
    Ok(Exit::Done)
}
