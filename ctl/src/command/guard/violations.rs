//! `guard violations`: who breaks rules now, and what was decided.

use super::{connect, now};
use crate::args::Violations;
use crate::command::audit::{Left, Next, next, span};
use crate::command::list::person::may_be;
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::output::history::{Rest, Span};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::document::ViolationsDocument;
use gpukill_proto::guard::{ViolationPage, ViolationQuery};
use gpukill_proto::text::visible;

/// Without `--hours` and `--since`: a week.
const DEFAULT_HOURS: u32 = 168;

/// Asks page by page and prints.
pub(super) fn run(
    wanted: &Violations,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let span = span(&wanted.period, DEFAULT_HOURS, now()).map_err(Failure::Usage)?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let (all, rest) = pages(&daemon, wanted, span, settings)?;
    if rest == Rest::More {
        messages.warn("there are more records: --limit 0 shows all");
    }
    let stranger = stranger(wanted.user.as_deref(), &all);
    match settings.output_format {
        Format::Json => print(&json::pretty(&ViolationsDocument::from(&all))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv if stranger.is_none() => {
            let look = Look::of_stdout(settings);
            // A dry run, a guard that has stopped and one that ends jobs look alike in what
            // goes on.
            let status = daemon.status(Patience::lasting(settings.timeout))?;
            print_lines(&guard::violations(&all, &status.guard, now(), &look), &look)?;
        }
        Format::Table | Format::Ndjson | Format::Csv => {}
    }
    stranger.map_or(Ok(Exit::Done), Err)
}

/// That nobody is called as was typed. Whoever is there and breaks no rule is an answer.
fn stranger(user: Option<&str>, all: &ViolationPage) -> Option<Failure> {
    let user = user?;
    let is_empty = all.open.is_empty() && all.would_have_ended.is_empty() && all.records.is_empty();
    (is_empty && !may_be(user)).then(|| {
        let user = visible(user.as_bytes(), 80);
        Failure::NoMatch(format!(
            "no violation is of {user}: no user is called {user}"
        ))
    })
}

/// Everything that is wanted, and whether there is more.
fn pages(
    daemon: &Daemon,
    wanted: &Violations,
    span: Span,
    settings: &Settings,
) -> Result<(ViolationPage, Rest), Failure> {
    let mut left = Left::of(wanted.limit);
    let mut before = None;
    let mut whole: Option<ViolationPage> = None;
    loop {
        let query = ViolationQuery {
            since: span.since,
            until: span.until,
            user: wanted.user.clone(),
            before,
            limit: left.of_a_page(),
        };
        let page = daemon.violations(&query, Patience::lasting(settings.timeout))?;
        left.take(page.records.len());
        let next_page = page.next;
        // What goes on comes with the first.
        let whole = match &mut whole {
            Some(whole) => {
                whole.records.extend(page.records);
                whole
            }
            None => whole.insert(page),
        };
        match next(next_page, before, left)? {
            Next::Page(next) => before = Some(next),
            Next::Over(rest) => return Ok((std::mem::take(whole), rest)),
        }
    }
}
