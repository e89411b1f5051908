//! `audit --summary` and `--weekly`: what a stretch of the past comes to.

use super::{DEFAULT_HOURS_OF_A_WEEK, connect, filter, now, span, span_from};
use crate::args::Audit;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::moment;
use crate::output::csv::{self, Header};
use crate::output::history::Span;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::summary::{self, Shown};
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use chrono::{DateTime, Datelike as _, Days, Local, TimeZone};
use gpukill_proto::audit::AuditSummary;
use gpukill_proto::document::{SummaryDocument, WeekDocument, WeeklyDocument};
use gpukill_proto::units::Timestamp;

/// Without `--hours` and `--since`: this week and so many before it.
const WEEKS_BEFORE: u64 = 7;

/// Asks and prints.
pub(super) fn run(audit: &Audit, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    refuse_rows(audit)?;
    let span = if audit.weekly && audit.period.hours.is_none() {
        let from = |until| monday(until, WEEKS_BEFORE, now(), &Local);
        span_from(&audit.period, from, now())
    } else {
        span(&audit.period, DEFAULT_HOURS_OF_A_WEEK, now())
    };
    let span = span.map_err(Failure::Usage)?;
    let filter = filter(&audit.which, span)?;
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let summary = daemon.audit_summary(&filter, patience)?;
    let has_none = has_none(audit, &summary);
    if !has_none || settings.output_format != Format::Table {
        show(audit, &summary, span, settings)?;
    }
    if has_none {
        return Err(Failure::NoMatch("no record matches".into()));
    }
    Ok(Exit::Done)
}

/// Whether what was asked for is nothing of what there was. Time of devices that
/// nobody held is no answer to who a user's processes are, and is one to how a
/// device was used.
fn has_none(audit: &Audit, summary: &AuditSummary) -> bool {
    let typed = audit.which.typed();
    let names_processes = typed.iter().any(|(option, _)| *option != "--gpu");
    let nobody_held_any = summary.owners.is_empty() && summary.processes.is_empty();
    let is_without_time = summary.all().all_ms() == 0;
    nobody_held_any && (names_processes || (!typed.is_empty() && is_without_time))
}

/// A summary is no list of things that are alike, so there are no rows of it. Where
/// only the settings ask for rows, it is a table.
fn refuse_rows(audit: &Audit) -> Result<(), Failure> {
    let form = match audit.output {
        Some(Format::Csv) if audit.summary => "csv",
        Some(Format::Ndjson) if audit.summary => "ndjson",
        None | Some(Format::Table | Format::Json | Format::Ndjson | Format::Csv) => return Ok(()),
    };
    let possible = "table and json; --weekly has ndjson and csv too";
    let what = format!("--summary has no form {form}: it has {possible}");
    Err(Failure::Usage(what))
}

fn show(
    audit: &Audit,
    summary: &AuditSummary,
    span: Span,
    settings: &Settings,
) -> Result<(), Failure> {
    let weeks = || summary.weeks.iter().map(WeekDocument::from);
    match settings.output_format {
        Format::Json if audit.weekly => print(&json::pretty(&WeeklyDocument::from(summary))?),
        Format::Json => print(&json::pretty(&SummaryDocument::from(summary))?),
        Format::Ndjson if audit.weekly => {
            let lines = weeks().map(|week| json::on_one_line(&week));
            print(&lines.collect::<Result<String, Failure>>()?)
        }
        Format::Csv if audit.weekly => {
            print(&csv::weeks(&weeks().collect::<Vec<_>>(), Header::First)?)
        }
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            let shown = Shown {
                summary,
                span,
                only: audit.which.typed(),
                now: now(),
            };
            let lines = if audit.weekly {
                summary::weekly(&shown, &look)
            } else {
                summary::lines(&shown, &look)
            };
            print_lines(&lines, &look)
        }
    }
}

/// The midnight with which a week begins, so many weeks before that of `moment`.
fn monday(moment: Timestamp, weeks: u64, now: Timestamp, zone: &impl TimeZone) -> Timestamp {
    // chrono panics where the zone's offset leads out of its calendar; nothing was
    // recorded outside the years 1970 to 9999.
    const YEARS: std::ops::Range<i64> = 0..253_402_214_400_000;
    let date = DateTime::from_timestamp_millis(moment.0)
        .filter(|_| YEARS.contains(&moment.0))
        .map(|moment| moment.with_timezone(zone).date_naive());
    let monday = date.and_then(|date| {
        let days = u64::from(date.weekday().num_days_from_monday()) + 7 * weeks;
        date.checked_sub_days(Days::new(days))
    });
    let midnight = monday.and_then(|date| moment::parse(&date.to_string(), now, zone).ok());
    midnight.unwrap_or(Timestamp(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    /// A Saturday: 2026-11-21 14:02:31.250 UTC.
    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    #[test]
    fn a_week_begins_with_the_midnight_of_its_monday_where_the_person_is() {
        let begin = |moment: Timestamp, weeks, hours: i32| {
            let zone = FixedOffset::east_opt(3600 * hours).expect("it is an offset");
            monday(moment, weeks, NOW, &zone).to_rfc3339()
        };
        assert_eq!(begin(NOW, 0, 0), "2026-11-16T00:00:00.000Z");
        assert_eq!(begin(NOW, 7, 1), "2026-09-27T23:00:00.000Z");
        let sunday_evening = NOW.plus_seconds(33 * 3600);
        assert_eq!(begin(sunday_evening, 0, 0), "2026-11-16T00:00:00.000Z");
        assert_eq!(begin(sunday_evening, 0, 2), "2026-11-22T22:00:00.000Z");
        for far in [i64::MIN, i64::MAX, 0, -1, 8_210_266_876_799_999] {
            begin(Timestamp(far), 7, 14);
            begin(Timestamp(far), 7, -12);
        }
    }
}
