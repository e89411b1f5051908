//! `audit series`: usage over time.

use super::{DEFAULT_HOURS, connect, no_match_error, now, record_filter, time_span};
use crate::args::{Series, SeriesLines};
use crate::connect::call;
use crate::exit::{Error, Exit};
use crate::output::audit::series::{csv, lines, plot_lines};
use crate::output::json;
use crate::output::style::OutputStyle;
use crate::output::{print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::audit::{SeriesBy, SeriesQuery};
use gpukill_proto::json::SeriesDocument;

/// Default without `--buckets`: half an hour each of a day.
const DEFAULT_BUCKETS: u32 = 48;

pub(super) fn run(wanted: &Series, settings: &Settings) -> Result<Exit, Error> {
    let span = time_span(&wanted.period, DEFAULT_HOURS, now()).map_err(Error::Usage)?;
    let style = OutputStyle::for_stdout(settings);
    let query = SeriesQuery {
        filter: record_filter(&wanted.which, span)?,
        by: match wanted.by {
            SeriesLines::Gpu => SeriesBy::Gpu,
            SeriesLines::User => SeriesBy::Owner,
            SeriesLines::Job => SeriesBy::Job,
        },
        buckets: wanted.buckets.unwrap_or(DEFAULT_BUCKETS),
    };
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let series = call!(daemon, timeout, AuditSeries { query })?;
    let is_empty = series.lines.is_empty();
    match settings.output_format {
        Format::Table if is_empty => {}
        Format::Table if wanted.plot => print_lines(&plot_lines(&series, span, &style), &style)?,
        Format::Table => print_lines(&lines(&series, span, &style), &style)?,
        Format::Json => print(&json::pretty(&SeriesDocument::from(&series))?)?,
        Format::Ndjson => {
            for row in SeriesDocument::from(&series).rows() {
                print(&json::on_one_line(&row)?)?;
            }
        }
        Format::Csv => print(&csv(&SeriesDocument::from(&series))?)?,
    }
    if is_empty {
        let what = "nothing was recorded of it in that time".to_owned();
        let groups = wanted.which.group.as_deref().unwrap_or_default();
        return Err(no_match_error(what, &wanted.which.users(), groups));
    }
    Ok(Exit::Done)
}
