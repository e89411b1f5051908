//! `guard violations`: open violations and recorded decisions.

use super::{now, open_connection};
use crate::args::Violations;
use crate::command::audit::{collect_pages, time_span};
use crate::command::list::user_lookup;
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::audit::history::{Remaining, TimeSpan, beginning_line, more_line};
use crate::output::style::OutputStyle;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::guard::{ViolationPage, ViolationQuery};
use gpukill_proto::json::ViolationsDocument;
use gpukill_proto::text::sanitize;

/// Default without `--hours` and `--since`: a week.
const DEFAULT_HOURS: u32 = 168;

/// Default without `--limit`.
const DEFAULT_LIMIT: u32 = 100;

/// Requests violations page by page and prints them.
pub(super) fn run(wanted: &Violations, settings: &Settings) -> Result<Exit, Error> {
    let span = time_span(&wanted.period, DEFAULT_HOURS, now()).map_err(Error::Usage)?;
    let daemon = open_connection(settings)?;
    let (all, rest) = request_pages(&daemon, wanted, span, settings)?;
    let user_error = unknown_user(wanted.user.as_deref(), &all);
    match settings.output_format {
        Format::Json => print(&json::pretty(&ViolationsDocument::from(&all))?)?,
        // Only the settings can select formats that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv if user_error.is_none() => {
            let style = OutputStyle::for_stdout(settings);
            // The heading tells a dry run, a stopped guard and a guard that ends jobs apart; the
            // violations alone do not.
            let status = call!(daemon, settings.request_timeout(), Status {})?;
            let mut lines = guard::violations(&all, &status.guard, now(), &style);
            lines.extend(more_line(rest, &style));
            lines.extend(guard::hidden_note(&status));
            print_lines(&lines, &style)?;
            if all.records.is_empty() {
                let since = status.store.recorded_since;
                print_lines(beginning_line(span, since, &style).as_slice(), &style)?;
            }
        }
        Format::Table | Format::Ndjson | Format::Csv => {}
    }
    user_error.map_or(Ok(Exit::Done), Err)
}

/// An error when no user has the typed name. A known user without violations is a valid answer.
fn unknown_user(user: Option<&str>, all: &ViolationPage) -> Option<Error> {
    let user = user?;
    let is_empty = all.open.is_empty() && all.would_have_ended.is_empty() && all.records.is_empty();
    if !is_empty {
        return None;
    }
    let unknown = user_lookup::unknown_user(user)?;
    let user = sanitize(user.as_bytes(), 80);
    Some(Error::NoMatch(format!(
        "no violation is of {user}: no user is called {unknown}"
    )))
}

/// All requested records, and whether there are more.
fn request_pages(
    daemon: &Daemon,
    wanted: &Violations,
    span: TimeSpan,
    settings: &Settings,
) -> Result<(ViolationPage, Remaining), Error> {
    let mut whole: Option<ViolationPage> = None;
    let rest = collect_pages(
        wanted.limit.unwrap_or(DEFAULT_LIMIT),
        &mut |before, limit| {
            let query = ViolationQuery {
                since: span.since,
                until: span.until,
                user: wanted.user.clone(),
                before,
                limit,
            };
            let page = call!(daemon, settings.request_timeout(), Violations { query })?;
            let (count, next) = (page.records.len(), page.next);
            // The open violations come with the first page.
            match &mut whole {
                Some(whole) => whole.records.extend(page.records),
                None => whole = Some(page),
            }
            Ok((count, next))
        },
    )?;
    Ok((whole.unwrap_or_default(), rest))
}
