//! `audit --summary` and `--weekly`: the summary of a time range.

use super::{
    DEFAULT_WEEK_HOURS, connect, no_match, now, record_filter, request_coverage, time_span,
    time_span_with_default,
};
use crate::args::Audit;
use crate::connect::call;
use crate::exit::{Error, Exit};
use crate::output::audit::history::TimeSpan;
use crate::output::audit::summary::{self, SummaryView};
use crate::output::csv::{self, Header};
use crate::output::style::OutputStyle;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use crate::time_input;
use chrono::{DateTime, Datelike as _, Days, Local, TimeZone};
use gpukill_proto::audit::AuditSummary;
use gpukill_proto::json::{OwnerTimeDocument, SummaryDocument, WeekDocument, WeeklyDocument};
use gpukill_proto::units::Timestamp;

/// Default without `--hours` and `--since`: this week and this number of weeks before it.
const WEEKS_BEFORE: u64 = 7;

/// Requests the summary and prints it.
pub(super) fn run(audit: &Audit, settings: &Settings) -> Result<Exit, Error> {
    let span = if audit.weekly && audit.period.hours.is_none() {
        let from = |until| monday_midnight(until, WEEKS_BEFORE, now(), &Local);
        time_span_with_default(&audit.period, from, now())
    } else {
        time_span(&audit.period, DEFAULT_WEEK_HOURS, now())
    };
    let span = span.map_err(Error::Usage)?;
    let filter = record_filter(&audit.which, span)?;
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let summary = call!(daemon, timeout, AuditSummary { filter })?;
    let has_none = matches_nothing(audit, &summary);
    if !has_none || settings.output_format != Format::Table {
        let is_empty = summary.total_times().total_ms() == 0;
        let coverage = is_empty.then(|| request_coverage(&daemon, span, settings));
        let recorded_since = coverage.and_then(|coverage| coverage.ok()?.recorded_since);
        print_summary(audit, &summary, (span, recorded_since), settings)?;
    }
    if matches!(settings.output_format, Format::Csv | Format::Ndjson) {
        warn_of_omitted_owners(audit, &summary, settings);
    }
    if !has_none {
        return Ok(Exit::Done);
    }
    if summary.total_times().total_ms() == 0 {
        let what = "nothing is recorded of it in this time";
        return Err(Error::NoMatch(what.into()));
    }
    if settings.output_format == Format::Table {
        let style = OutputStyle::for_stdout(settings);
        print_lines(&summary::gap_lines(&summary.gaps, now(), &style), &style)?;
    }
    let groups = audit.which.group.as_deref().unwrap_or_default();
    Err(no_match("record", &audit.which.users(), groups))
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

/// Warns that rows of owners are not complete. Rows of weeks always are.
fn warn_of_omitted_owners(audit: &Audit, summary: &AuditSummary, settings: &Settings) {
    let more = summary.more_owners;
    if more > 0 && !audit.weekly {
        settings.messages().warn(&format!(
            "{more} more owners are left out, those with the shortest times"
        ));
    }
}

fn print_summary(
    audit: &Audit,
    summary: &AuditSummary,
    (span, recorded_since): (TimeSpan, Option<Timestamp>),
    settings: &Settings,
) -> Result<(), Error> {
    let weeks = || summary.weeks.iter().map(WeekDocument::from);
    let owners = || summary.owners.iter().map(OwnerTimeDocument::from);
    match settings.output_format {
        Format::Json if audit.weekly => print(&json::pretty(&WeeklyDocument::from(summary))?),
        Format::Json => print(&json::pretty(&SummaryDocument::from(summary))?),
        Format::Ndjson if audit.weekly => {
            let lines = weeks().map(|week| json::on_one_line(&week));
            print(&lines.collect::<Result<String, Error>>()?)
        }
        Format::Csv if audit.weekly => {
            let weeks: Vec<_> = weeks().collect();
            print(&csv::documents(
                WeekDocument::FIELDS,
                &weeks,
                Header::First,
            )?)
        }
        // Of the parts of a summary, people compute with that of the owners.
        Format::Ndjson => {
            let lines = owners().map(|owner| json::on_one_line(&owner));
            print(&lines.collect::<Result<String, Error>>()?)
        }
        Format::Csv => print(&csv::owners(&owners().collect::<Vec<_>>())?),
        Format::Table => {
            let style = OutputStyle::for_stdout(settings);
            let shown = SummaryView {
                summary,
                span,
                only: audit.which.conditions(),
                recorded_since,
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
