//! `audit`: what the samples say of the past, and, a file each, what it comes to
//! and what was done.

mod summary;

mod actions;

mod export;

mod backup;

mod prune;

use super::{confirm, connect, now};
use crate::args::{Audit, AuditCommand, Period, Which};
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::moment;
use crate::output::history::{IfEmpty, Records, Rest, Span};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::settings::Settings;
use chrono::Local;
use gpukill_policy::select::pattern;
use gpukill_proto::audit::{AuditFilter, AuditQuery, AuditRecord};
use gpukill_proto::units::Timestamp;

/// Without `--hours` and `--since`.
const DEFAULT_HOURS: u32 = 24;

/// The same, where a day says little: a week.
const DEFAULT_HOURS_OF_A_WEEK: u32 = 168;

/// Without `--limit`.
const DEFAULT_LIMIT: u32 = 1000;

/// The most records of one page; some hundred bytes each, so that a page stays
/// far below the longest answer (4 MiB).
const PAGE: u32 = 1000;

/// Does what is asked with the past.
pub(crate) fn run(audit: &Audit, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    if let Some(option) = audit.stray() {
        let what = format!("{option} stands before the command: type it behind");
        return Err(Failure::Usage(what));
    }
    match &audit.command {
        Some(AuditCommand::Actions(wanted)) => actions::run(wanted, settings, messages),
        Some(AuditCommand::Export(wanted)) => export::run(wanted, settings, messages),
        Some(AuditCommand::Backup(wanted)) => backup::run(wanted, settings, messages),
        Some(AuditCommand::Restore { .. }) => Err(Failure::Usage(
            "root restores a backup while gpukilld is stopped: systemctl stop gpukilld, then \
             gpukilld restore FILE, then systemctl start gpukilld"
                .into(),
        )),
        Some(AuditCommand::Prune(wanted)) => prune::run(wanted, settings, messages),
        None if audit.summary || audit.weekly => summary::run(audit, settings, messages),
        None => records(audit, settings, messages),
    }
}

/// Asks for records page by page and prints them.
fn records(audit: &Audit, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let span = span(&audit.period, DEFAULT_HOURS, now()).map_err(Failure::Usage)?;
    let filter = filter(&audit.which, span)?;
    let is_narrowed = !audit.which.typed().is_empty();
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let look = Look::of_stdout(settings);
    let mut records = Records::<AuditRecord>::begin(settings.output_format, span, look);
    let limit = audit.limit.unwrap_or(DEFAULT_LIMIT);
    let outcome = pages(&daemon, &filter, limit, settings, &mut records);
    end(records, outcome, is_narrowed, "record", messages)
}

/// Ends what was printed page by page, and tells how that went. `one` is what is
/// counted.
fn end<R: crate::output::history::Entry>(
    records: Records<R>,
    outcome: Result<Rest, Failure>,
    is_narrowed: bool,
    one: &str,
    messages: Messages,
) -> Result<Exit, Failure> {
    // A document that was begun is ended, whatever happened.
    let rest = *outcome.as_ref().unwrap_or(&Rest::More);
    // A failure says that there is none.
    let if_empty = if is_narrowed && rest == Rest::None {
        IfEmpty::Nothing
    } else {
        IfEmpty::Heading
    };
    let count = records.end(rest, if_empty)?;
    match outcome? {
        Rest::More => messages.warn("there are more records: --limit 0 shows all"),
        Rest::None if count == 0 && is_narrowed => {
            return Err(Failure::NoMatch(format!("no {one} matches")));
        }
        Rest::None => {}
    }
    Ok(Exit::Done)
}

/// What is asked for. Both sides speak the same expressions: a wrong one need not
/// travel.
fn filter(which: &Which, span: Span) -> Result<AuditFilter, Failure> {
    let Which {
        user,
        process,
        gpu,
        container,
        job,
    } = which.clone();
    if let Some(process) = &process {
        pattern(process).map_err(Failure::Usage)?;
    }
    Ok(AuditFilter {
        since: span.since,
        until: span.until,
        user,
        process,
        gpu,
        container,
        job,
    })
}

fn pages(
    daemon: &Daemon,
    filter: &AuditFilter,
    limit: u32,
    settings: &Settings,
    records: &mut Records<AuditRecord>,
) -> Result<Rest, Failure> {
    let mut left = Left::of(limit);
    let mut before = None;
    loop {
        let query = AuditQuery {
            filter: filter.clone(),
            before,
            limit: left.of_a_page(),
        };
        let page = daemon.audit(&query, Patience::lasting(settings.timeout))?;
        left.take(page.records.len());
        records.add(page.records)?;
        match next(page.next, before, left)? {
            Next::Page(next) => before = Some(next),
            Next::Over(rest) => return Ok(rest),
        }
    }
}

/// How many more are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left(u64);

impl Left {
    /// 0 is all.
    pub(super) fn of(limit: u32) -> Self {
        Self(match limit {
            0 => u64::MAX,
            limit => u64::from(limit),
        })
    }

    pub(super) fn of_a_page(self) -> u32 {
        u32::try_from(self.0).map_or(PAGE, |left| left.min(PAGE))
    }

    pub(super) fn take(&mut self, count: usize) {
        self.0 = self.0.saturating_sub(count as u64);
    }
}

/// What follows a page.
pub(super) enum Next<P> {
    Page(P),
    Over(Rest),
}

/// Whether there is a next page and it is wanted. Pages go back in time.
pub(super) fn next<P: Ord>(
    next: Option<P>,
    before: Option<P>,
    left: Left,
) -> Result<Next<P>, Failure> {
    match next {
        None => Ok(Next::Over(Rest::None)),
        Some(_) if left.0 == 0 => Ok(Next::Over(Rest::More)),
        Some(next) if before.is_some_and(|before| next >= before) => {
            Err(Failure::Broken("its pages do not advance".into()))
        }
        Some(next) => Ok(Next::Page(next)),
    }
}

/// The time that is asked for.
pub(super) fn span(period: &Period, default_hours: u32, now: Timestamp) -> Result<Span, String> {
    let since = |until: Timestamp| {
        let hours = i64::from(period.hours.unwrap_or(default_hours));
        until.plus_seconds(-3600 * hours)
    };
    span_from(period, since, now)
}

/// The same, where it begins, unless that is typed, so long before its end.
fn span_from(
    period: &Period,
    default: impl FnOnce(Timestamp) -> Timestamp,
    now: Timestamp,
) -> Result<Span, String> {
    let typed = |text: &Option<String>| {
        let parsed = text.as_deref().map(|text| moment::parse(text, now, &Local));
        parsed.transpose()
    };
    let until = typed(&period.until)?.unwrap_or(now);
    let since = typed(&period.since)?.unwrap_or_else(|| default(until));
    if since >= until {
        let (since, until) = (since.to_rfc3339(), until.to_rfc3339());
        return Err(format!("the time is empty: from {since} to {until}"));
    }
    // Nothing was recorded before 1970, and the year 0 reads badly.
    let since = since.max(Timestamp(0));
    Ok(Span { since, until })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    fn spanned(typed: &[&str]) -> Result<(String, String), String> {
        let words = ["gpukillctl", "audit"].iter().chain(typed);
        match Cli::try_parse_from(words).expect("it is right").command {
            Command::Audit(audit) => span(&audit.period, DEFAULT_HOURS, NOW)
                .map(|span| (span.since.to_rfc3339(), span.until.to_rfc3339())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_time_is_the_last_day_unless_it_is_named() {
        let now = NOW.to_rfc3339();
        let at = |text: &str| text.to_owned();
        let cases: [(&[&str], String, String); 4] = [
            (&[], at("2026-11-20T14:02:31.250Z"), now.clone()),
            (
                &["--hours", "2"],
                at("2026-11-21T12:02:31.250Z"),
                now.clone(),
            ),
            (&["--since", "7d ago"], at("2026-11-14T14:02:31.250Z"), now),
            (
                &["--since", "2h ago", "--until", "1h ago"],
                at("2026-11-21T12:02:31.250Z"),
                at("2026-11-21T13:02:31.250Z"),
            ),
        ];
        for (typed, since, until) in cases {
            assert_eq!(spanned(typed), Ok((since, until)), "{typed:?}");
        }
    }

    #[test]
    fn absurd_times_are_answered_or_refused_and_never_crash() {
        let longest = spanned(&["--hours", "4294967295"]).map(|(since, _)| since);
        assert_eq!(longest.as_deref(), Ok("1970-01-01T00:00:00.000Z"));
        assert_eq!(
            spanned(&["--since", "1h ago", "--until", "2h ago"]),
            Err(
                "the time is empty: from 2026-11-21T13:02:31.250Z to 2026-11-21T12:02:31.250Z"
                    .into()
            )
        );
        assert!(spanned(&["--since", "in a while"]).is_err());
        assert!(spanned(&["--since", "2100-01-01"]).is_err());
    }
}
