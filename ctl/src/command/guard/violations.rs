//! `guard violations`: who breaks rules now, and what was decided.

use super::{connect, now};
use crate::args::Violations;
use crate::command::audit::span;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::document::ViolationsDocument;
use gpukill_proto::guard::{ViolationPage, ViolationQuery};

/// Without `--hours` and `--since`: a week.
const DEFAULT_HOURS: u32 = 168;

/// The most records of one page.
const PAGE: u32 = 1_000;

/// Asks page by page and prints.
pub(super) async fn run(
    wanted: &Violations,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let span = span(&wanted.period, DEFAULT_HOURS, now()).map_err(Failure::Usage)?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages).await?;
    let mut left = match wanted.limit {
        0 => u32::MAX,
        limit => limit,
    };
    let mut query = ViolationQuery {
        since: span.since,
        until: span.until,
        user: wanted.user.clone(),
        before: None,
        limit: left.min(PAGE),
    };
    let mut all = ViolationPage {
        open: Vec::new(),
        records: Vec::new(),
        next: None,
    };
    loop {
        let patience = Patience::lasting(settings.timeout);
        let page = daemon.violations(&query, patience).await?;
        if query.before.is_none() {
            all.open = page.open;
        }
        left = left.saturating_sub(u32::try_from(page.records.len()).unwrap_or(u32::MAX));
        all.records.extend(page.records);
        match page.next {
            None => break,
            Some(_) if left == 0 => {
                messages.warn("there are more records: --limit 0 shows all");
                break;
            }
            Some(next) if query.before.is_some_and(|before| next >= before) => {
                return Err(Failure::Broken("its pages do not advance".into()));
            }
            Some(next) => {
                query.before = Some(next);
                query.limit = left.min(PAGE);
            }
        }
    }
    match settings.output_format {
        Format::Json => print(&json::pretty(&ViolationsDocument::from(&all))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&guard::violations(&all, now(), &look), &look)?;
        }
    }
    Ok(Exit::Done)
}
