//! `audit`: what the samples say of the past.

use super::{connect, now};
use crate::args::Audit;
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::moment;
use crate::output::history::{IfEmpty, Records, Rest, Span};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::settings::Settings;
use chrono::Local;
use gpukill_policy::select::pattern;
use gpukill_proto::audit::AuditQuery;
use gpukill_proto::units::Timestamp;

/// Without `--hours` and `--since`.
const DEFAULT_HOURS: u32 = 24;

/// The most records of one page; some hundred bytes each, so that a page stays
/// far below the longest answer (4 MiB).
const PAGE: u32 = 1000;

/// Asks page by page and prints.
pub(crate) async fn run(
    audit: &Audit,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    // Both sides speak the same expressions: a wrong one need not travel.
    if let Some(process) = &audit.process {
        pattern(process).map_err(Failure::Usage)?;
    }
    let span = span(audit, now()).map_err(Failure::Usage)?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages).await?;
    let look = Look::of_stdout(settings);
    let mut records = Records::begin(settings.output_format, span, look);
    let outcome = pages(&daemon, audit, span, settings, &mut records).await;
    // A document that was begun is ended, whatever happened.
    let rest = *outcome.as_ref().unwrap_or(&Rest::More);
    let is_narrowed = is_narrowed(audit);
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
            return Err(Failure::NoMatch("no record matches".into()));
        }
        Rest::None => {}
    }
    Ok(Exit::Done)
}

fn is_narrowed(audit: &Audit) -> bool {
    audit.user.is_some() || audit.process.is_some() || audit.gpu.is_some()
}

async fn pages(
    daemon: &Daemon,
    audit: &Audit,
    span: Span,
    settings: &Settings,
    records: &mut Records,
) -> Result<Rest, Failure> {
    let mut left = match audit.limit {
        0 => u64::MAX,
        limit => u64::from(limit),
    };
    let mut before = None;
    loop {
        let query = AuditQuery {
            since: span.since,
            until: span.until,
            user: audit.user.clone(),
            process: audit.process.clone(),
            gpu: audit.gpu.clone(),
            before,
            limit: u32::try_from(left).map_or(PAGE, |left| left.min(PAGE)),
        };
        let page = daemon
            .audit(&query, Patience::lasting(settings.timeout))
            .await?;
        let count = page.records.len() as u64;
        records.add(page.records)?;
        left = left.saturating_sub(count);
        match page.next {
            None => return Ok(Rest::None),
            Some(_) if left == 0 => return Ok(Rest::More),
            Some(next) if before.is_some_and(|before| next >= before) => {
                return Err(Failure::Broken("its pages do not advance".into()));
            }
            Some(next) => before = Some(next),
        }
    }
}

/// The time that is asked for.
fn span(audit: &Audit, now: Timestamp) -> Result<Span, String> {
    let typed = |text: &Option<String>| {
        let parsed = text.as_deref().map(|text| moment::parse(text, now, &Local));
        parsed.transpose()
    };
    let until = typed(&audit.until)?.unwrap_or(now);
    let hours = i64::from(audit.hours.unwrap_or(DEFAULT_HOURS));
    let since = typed(&audit.since)?.unwrap_or(until.plus_seconds(-3600 * hours));
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
            Command::Audit(audit) => {
                span(&audit, NOW).map(|span| (span.since.to_rfc3339(), span.until.to_rfc3339()))
            }
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
