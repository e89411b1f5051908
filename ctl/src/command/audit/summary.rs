//! `audit --summary` and `--weekly`: the summary of a time range.

use super::{DEFAULT_WEEK_HOURS, connect, now, record_filter, time_span, time_span_with_default};
use crate::args::Audit;
use crate::connect::{RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::audit::history::TimeSpan;
use crate::output::audit::summary::{self, SummaryView};
use crate::output::csv::{self, Header};
use crate::output::message::Messages;
use crate::output::style::OutputStyle;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use crate::time_input;
use chrono::{DateTime, Datelike as _, Days, Local, TimeZone};
use gpukill_proto::audit::AuditSummary;
use gpukill_proto::json::{SummaryDocument, WeekDocument, WeeklyDocument};
use gpukill_proto::units::Timestamp;

/// Default without `--hours` and `--since`: this week and this number of weeks before it.
const WEEKS_BEFORE: u64 = 7;

/// Requests the summary and prints it.
pub(super) fn run(audit: &Audit, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    refuse_rows(audit)?;
    let span = if audit.weekly && audit.period.hours.is_none() {
        let from = |until| monday_midnight(until, WEEKS_BEFORE, now(), &Local);
        time_span_with_default(&audit.period, from, now())
    } else {
        time_span(&audit.period, DEFAULT_WEEK_HOURS, now())
    };
    let span = span.map_err(Error::Usage)?;
    let filter = record_filter(&audit.which, span)?;
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let daemon = connect(settings, timeout, messages)?;
    let summary = call!(daemon, timeout, AuditSummary { filter })?;
    let has_none = matches_nothing(audit, &summary);
    if !has_none || settings.output_format != Format::Table {
        print_summary(audit, &summary, span, settings)?;
    }
    if has_none {
        return Err(Error::NoMatch("no record matches".into()));
    }
    Ok(Exit::Done)
}

/// Whether nothing matched the conditions. Time of devices that no process held answers how a
/// device was used, but not what a user's processes did.
fn matches_nothing(audit: &Audit, summary: &AuditSummary) -> bool {
    let typed = audit.which.conditions();
    let names_processes = typed.iter().any(|(option, _)| *option != "--gpu");
    let nobody_held_any = summary.owners.is_empty() && summary.processes.is_empty();
    let is_without_time = summary.total_times().total_ms() == 0;
    nobody_held_any && (names_processes || (!typed.is_empty() && is_without_time))
}

/// Refuses row formats that were typed for a summary, because a summary is not a list of like
/// items. When only the settings ask for rows, a table is printed.
fn refuse_rows(audit: &Audit) -> Result<(), Error> {
    let form = match audit.output {
        Some(Format::Csv) if audit.summary => "csv",
        Some(Format::Ndjson) if audit.summary => "ndjson",
        None | Some(Format::Table | Format::Json | Format::Ndjson | Format::Csv) => return Ok(()),
    };
    let possible = "table and json; --weekly has ndjson and csv too";
    let what = format!("--summary has no form {form}: it has {possible}");
    Err(Error::Usage(what))
}

fn print_summary(
    audit: &Audit,
    summary: &AuditSummary,
    span: TimeSpan,
    settings: &Settings,
) -> Result<(), Error> {
    let weeks = || summary.weeks.iter().map(WeekDocument::from);
    match settings.output_format {
        Format::Json if audit.weekly => print(&json::pretty(&WeeklyDocument::from(summary))?),
        Format::Json => print(&json::pretty(&SummaryDocument::from(summary))?),
        Format::Ndjson if audit.weekly => {
            let lines = weeks().map(|week| json::on_one_line(&week));
            print(&lines.collect::<Result<String, Error>>()?)
        }
        Format::Csv if audit.weekly => {
            print(&csv::weeks(&weeks().collect::<Vec<_>>(), Header::First)?)
        }
        Format::Table | Format::Ndjson | Format::Csv => {
            let style = OutputStyle::for_stdout(settings);
            let shown = SummaryView {
                summary,
                span,
                only: audit.which.conditions(),
                now: now(),
            };
            let lines = if audit.weekly {
                summary::weekly(&shown, &style)
            } else {
                summary::lines(&shown, &style)
            };
            print_lines(&lines, &style)
        }
    }
}

/// The Monday midnight that starts the week `weeks` weeks before that of `moment`.
pub(super) fn monday_midnight(
    moment: Timestamp,
    weeks: u64,
    now: Timestamp,
    zone: &impl TimeZone,
) -> Timestamp {
    // chrono panics when the zone's offset leads out of its calendar. Nothing was recorded
    // outside the years 1970 to 9999.
    const YEARS: std::ops::Range<i64> = 0..253_402_214_400_000;
    let date = DateTime::from_timestamp_millis(moment.0)
        .filter(|_| YEARS.contains(&moment.0))
        .map(|moment| moment.with_timezone(zone).date_naive());
    let monday = date.and_then(|date| {
        let days = u64::from(date.weekday().num_days_from_monday()) + 7 * weeks;
        date.checked_sub_days(Days::new(days))
    });
    let midnight = monday.and_then(|date| time_input::parse(&date.to_string(), now, zone).ok());
    midnight.unwrap_or(Timestamp(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    /// A Saturday: 2026-11-21 14:02:31.250 UTC.
    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    #[test]
    fn week_starts_on_local_monday() {
        let begin = |moment: Timestamp, weeks, hours: i32| {
            let zone = FixedOffset::east_opt(3600 * hours).expect("it is an offset");
            monday_midnight(moment, weeks, NOW, &zone).to_rfc3339()
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
