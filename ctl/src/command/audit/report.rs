//! `audit report`: a week as plain text that can be mailed.

use super::summary::monday_midnight;
use super::{DEFAULT_WEEK_HOURS, collect_pages, connect, now, time_span};
use crate::args::UsageReport;
use crate::command::list::user_lookup::unknown_name_texts;
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::audit::history::TimeSpan;
use crate::output::audit::usage_report::{UsageReportView, lines};
use crate::output::print_lines;
use crate::output::style::OutputStyle;
use crate::settings::Settings;
use chrono::Local;
use gpukill_policy::usage::findings::{ActionTotals, COUNTED_KINDS};
use gpukill_proto::audit::{ActionQuery, AuditFilter, AuditSummary, UsageTimes};
use gpukill_proto::units::Timestamp;

/// Requests the summaries of the period and of the one before, and the recorded actions, and
/// prints the report.
pub(super) fn run(wanted: &UsageReport, settings: &Settings) -> Result<Exit, Error> {
    let period = &wanted.period;
    let is_default = period.hours.is_none() && period.since.is_none() && period.until.is_none();
    let [span, before] = if is_default {
        let [until, since, before] =
            [0, 1, 2].map(|weeks| monday_midnight(now(), weeks, now(), &Local));
        [
            TimeSpan { since, until },
            TimeSpan {
                since: before,
                until: since,
            },
        ]
    } else {
        let span = time_span(period, DEFAULT_WEEK_HOURS, now()).map_err(Error::Usage)?;
        [span, period_before(span)]
    };
    let daemon = connect(settings, settings.request_timeout())?;
    let status = call!(daemon, settings.request_timeout(), Status {})?;
    let summary = request_summary(&daemon, span, wanted.group.clone(), settings)?;
    if let (Some(group), true) = (&wanted.group, summary.owners.is_empty()) {
        let unknown = unknown_name_texts("", group);
        if !unknown.is_empty() {
            return Err(Error::NoMatch(unknown.join("; ")));
        }
    }
    let times_before = match before.since < before.until {
        true => request_summary(&daemon, before, None, settings)?.total_times(),
        false => UsageTimes::default(),
    };
    let totals = request_totals(&daemon, span, settings)?;
    let style = OutputStyle::for_stdout(settings);
    let report = UsageReportView {
        host: &status.host,
        span,
        group: wanted.group.as_deref(),
        summary: &summary,
        times_before: (times_before.total_ms() > 0).then_some(times_before),
        totals: &totals,
        now: now(),
    };
    print_lines(&lines(&report, &style), &style)?;
    Ok(Exit::Done)
}

/// The period of the same length before this one.
fn period_before(span: TimeSpan) -> TimeSpan {
    let length = span.until.0.saturating_sub(span.since.0);
    TimeSpan {
        since: Timestamp(span.since.0.saturating_sub(length).max(0)),
        until: span.since,
    }
}

fn request_summary(
    daemon: &Daemon,
    span: TimeSpan,
    group: Option<String>,
    settings: &Settings,
) -> Result<AuditSummary, Error> {
    let filter = AuditFilter {
        group,
        ..AuditFilter::for_period(span.since, span.until)
    };
    call!(daemon, settings.request_timeout(), AuditSummary { filter })
}

/// Counts the recorded actions of the period.
fn request_totals(
    daemon: &Daemon,
    span: TimeSpan,
    settings: &Settings,
) -> Result<ActionTotals, Error> {
    let mut totals = ActionTotals::default();
    collect_pages(0, &mut |before, limit| {
        let query = ActionQuery {
            since: span.since,
            until: span.until,
            user: None,
            kind: Some(COUNTED_KINDS.to_owned()),
            gpu: None,
            before,
            limit,
        };
        let page = call!(daemon, settings.request_timeout(), AuditActions { query })?;
        page.records.iter().for_each(|record| totals.add(record));
        Ok((page.records.len(), page.next))
    })?;
    Ok(totals)
}
