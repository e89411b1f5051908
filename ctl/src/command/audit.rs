//! `audit`: past usage. Each subcommand has a file of its own.

mod actions;
mod archive;
mod backup;
mod export;
mod prune;
mod report;
mod runs;
mod series;
mod summary;
mod timeline;

use super::list::user_lookup::unknown_name_texts;
use super::{confirm, connect, now, open_connection};
use crate::args::{Audit, AuditCommand, Period, RecordFilter};
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::audit::history::{
    Coverage, EmptyOutput, PagedEntry, RecordPrinter, Remaining, TimeSpan,
};
use crate::output::style::{OutputStyle, Zone};
use crate::output::value::formatted;
use crate::settings::{Format, Settings};
use crate::time_input;
use chrono::Local;
use gpukill_policy::select::compile_pattern;
use gpukill_proto::audit::{
    AuditFilter, AuditPage, AuditQuery, AuditRecord, GUARD_USER, RunExtent, RunQuery, RunUnit,
};
use gpukill_proto::units::Timestamp;

/// Default without `--hours` and `--since`.
const DEFAULT_HOURS: u32 = 24;

/// Default of commands for which a day says little: a week.
const DEFAULT_WEEK_HOURS: u32 = 168;

/// Default of tables and JSON without `--limit`: more than a person reads.
const DEFAULT_LIMIT: u32 = 1000;

/// Maximum number of records in a page. A record has some hundred bytes, so a page stays far
/// below the maximum length of an answer (4 MiB).
const MAX_PAGE_RECORDS: u32 = 1000;

/// Runs `audit` or its subcommand.
pub(crate) fn run(audit: &Audit, settings: &Settings) -> Result<Exit, Error> {
    if let Some(option) = audit.misplaced_option() {
        let what = format!("{option} is before the command: move it after the command");
        return Err(Error::Usage(what));
    }
    match &audit.command {
        Some(AuditCommand::Actions(wanted)) => actions::run(wanted, settings),
        Some(AuditCommand::Series(wanted)) => series::run(wanted, settings),
        Some(AuditCommand::Timeline(wanted)) => timeline::run(wanted, settings),
        Some(AuditCommand::Report(wanted)) => report::run(wanted, settings),
        Some(AuditCommand::Export(wanted)) => export::run(wanted, settings),
        Some(AuditCommand::Archive(wanted)) => archive::run(wanted, settings),
        Some(AuditCommand::Backup(wanted)) => backup::run(wanted, settings),
        Some(AuditCommand::Restore { .. }) => Err(Error::Usage(
            "root restores a backup while gpukilld is stopped: systemctl stop gpukilld, then \
             gpukilld restore FILE, then systemctl start gpukilld"
                .into(),
        )),
        Some(AuditCommand::Prune(wanted)) => prune::run(wanted, settings),
        None if audit.summary || audit.weekly => summary::run(audit, settings),
        None if audit.samples => run_samples(audit, settings),
        None => runs::run(audit, settings),
    }
}

/// Requests samples page by page and prints them.
fn run_samples(audit: &Audit, settings: &Settings) -> Result<Exit, Error> {
    run_list(audit, settings, "sample", |daemon, filter, records| {
        request_pages(daemon, audit, filter, settings, records)
    })
}

/// Prints the list that `request` requests with this filter. `one` names a single entry.
fn run_list<R: PagedEntry>(
    audit: &Audit,
    settings: &Settings,
    one: &str,
    request: impl FnOnce(&Daemon, &AuditFilter, &mut RecordPrinter<R>) -> Result<Remaining, Error>,
) -> Result<Exit, Error> {
    let span = time_span(&audit.period, DEFAULT_HOURS, now()).map_err(Error::Usage)?;
    let filter = record_filter(&audit.which, span)?;
    let daemon = connect(settings, settings.request_timeout())?;
    let style = OutputStyle::for_stdout(settings);
    let mut records = RecordPrinter::new(settings.output_format, span, style);
    let outcome = request(&daemon, &filter, &mut records);
    if outcome.is_ok() && records.lacks_coverage() {
        let coverage = request_coverage(&daemon, span, settings);
        if let Err(error) = &coverage {
            let messages = settings.messages();
            messages.warn(&format!("times without samples are not known: {error}"));
        }
        records.set_coverage(coverage.unwrap_or_default());
    }
    let selection = ListSelection {
        one,
        is_narrowed: !audit.which.conditions().is_empty(),
        users: &audit.which.users(),
        groups: audit.which.group.as_deref().unwrap_or_default(),
    };
    finish_records(records, outcome, &selection)?;
    Ok(Exit::Done)
}

/// What was selected for a list.
struct ListSelection<'a> {
    /// The name of a single entry.
    one: &'a str,
    /// Whether a filter was typed.
    is_narrowed: bool,
    /// The typed users, separated by commas.
    users: &'a str,
    /// The typed groups, separated by commas.
    groups: &'a str,
}

/// What is recorded of a time range. Pages of samples do not have it, so it comes with a run.
fn request_coverage(
    daemon: &Daemon,
    span: TimeSpan,
    settings: &Settings,
) -> Result<Coverage, Error> {
    let query = RunQuery {
        filter: AuditFilter::for_period(span.since, span.until),
        unit: RunUnit::Process,
        extent: RunExtent::Whole,
        before: None,
        limit: 1,
    };
    let page = call!(daemon, settings.request_timeout(), AuditRuns { query })?;
    Ok(Coverage {
        gaps: Some(page.gaps),
        recorded_since: page.recorded_since,
    })
}

/// Maximum number of entries: without `--limit`, programs that read rows get all of them, because
/// rows do not tell that there are more.
const fn entry_limit(typed: Option<u32>, format: Format) -> u32 {
    match (typed, format) {
        (Some(limit), _) => limit,
        (None, Format::Ndjson | Format::Csv) => 0,
        (None, Format::Table | Format::Json) => DEFAULT_LIMIT,
    }
}

/// Finishes what was printed page by page, and returns the number of entries.
///
/// # Errors
/// A page could not be requested or printed, or a filter matches nothing.
fn finish_records<R: PagedEntry>(
    records: RecordPrinter<R>,
    outcome: Result<Remaining, Error>,
    selection: &ListSelection<'_>,
) -> Result<usize, Error> {
    // A started document is finished whatever happened.
    let remaining = *outcome.as_ref().unwrap_or(&Remaining::More);
    // Then the error states that nothing matched.
    let is_narrowed = selection.is_narrowed;
    let if_empty = if is_narrowed && remaining == Remaining::None {
        EmptyOutput::Coverage
    } else {
        EmptyOutput::Heading
    };
    let count = records.finish(remaining, if_empty)?;
    match outcome? {
        Remaining::None if count == 0 && is_narrowed => {
            Err(no_match(selection.one, selection.users, selection.groups))
        }
        Remaining::None | Remaining::More => Ok(count),
    }
}

/// The error when a filter matches no entry. It names the typed users and groups that this host does
/// not know, because they may be mistyped.
fn no_match(one: &str, users: &str, groups: &str) -> Error {
    no_match_error(format!("no {one} matches"), users, groups)
}

/// The error `what`, with the typed users and groups that this host does not know.
fn no_match_error(what: String, users: &str, groups: &str) -> Error {
    let users: Vec<&str> = users
        .split(',')
        .filter(|name| name.trim() != GUARD_USER)
        .collect();
    let unknown = unknown_name_texts(&users.join(","), groups);
    Error::NoMatch(match unknown.is_empty() {
        true => what,
        false => format!("{what}: {}", unknown.join("; ")),
    })
}

/// Builds the filter. Client and daemon use the same regular expressions, so a wrong expression
/// is refused here.
fn record_filter(which: &RecordFilter, span: TimeSpan) -> Result<AuditFilter, Error> {
    let users = Some(which.users()).filter(|users| !users.is_empty());
    let RecordFilter {
        user: _,
        group,
        process,
        command,
        gpu,
        container,
        job,
    } = which.clone();
    for pattern in [&process, &command].into_iter().flatten() {
        compile_pattern(pattern).map_err(Error::Usage)?;
    }
    Ok(AuditFilter {
        since: span.since,
        until: span.until,
        user: users,
        process,
        command,
        gpu,
        container,
        job,
        group,
    })
}

fn request_samples(
    daemon: &Daemon,
    filter: &AuditFilter,
    before: Option<u64>,
    limit: u32,
    settings: &Settings,
) -> Result<AuditPage, Error> {
    let query = AuditQuery {
        filter: filter.clone(),
        before,
        limit,
    };
    call!(daemon, settings.request_timeout(), Audit { query })
}

fn request_pages(
    daemon: &Daemon,
    audit: &Audit,
    filter: &AuditFilter,
    settings: &Settings,
    records: &mut RecordPrinter<AuditRecord>,
) -> Result<Remaining, Error> {
    collect_pages(
        entry_limit(audit.limit, settings.output_format),
        &mut |before, limit| {
            let page = request_samples(daemon, filter, before, limit, settings)?;
            let count = page.records.len();
            records.add(page.records)?;
            Ok((count, page.next))
        },
    )
}

/// Requests a page of entries before this cursor, with this maximum number of entries. Returns
/// the number of entries and the cursor of the next page.
type RequestPage<'a, C> = &'a mut dyn FnMut(Option<C>, u32) -> Result<(usize, Option<C>), Error>;

/// Requests pages with descending cursors until there are `limit` entries or no more; a limit of
/// 0 means all.
pub(super) fn collect_pages<C: Ord + Copy>(
    limit: u32,
    request_page: RequestPage<'_, C>,
) -> Result<Remaining, Error> {
    let mut left = match limit {
        0 => u64::MAX,
        limit => u64::from(limit),
    };
    let mut before = None;
    loop {
        let page_limit = u32::try_from(left)
            .unwrap_or(u32::MAX)
            .min(MAX_PAGE_RECORDS);
        let (count, next) = request_page(before, page_limit)?;
        left = left.saturating_sub(count as u64);
        match next {
            None => return Ok(Remaining::None),
            Some(_) if left == 0 => return Ok(Remaining::More),
            Some(next) if before.is_some_and(|before| next >= before) => {
                return Err(Error::ConnectionLost("its pages do not advance".into()));
            }
            Some(next) => before = Some(next),
        }
    }
}

/// The requested time range.
pub(super) fn time_span(
    period: &Period,
    default_hours: u32,
    now: Timestamp,
) -> Result<TimeSpan, String> {
    let since = |until: Timestamp| {
        let hours = i64::from(period.hours.unwrap_or(default_hours));
        until.plus_seconds(-3600 * hours)
    };
    time_span_with_default(period, since, now)
}

/// The requested time range. When no start is typed, `default` computes it from the end.
fn time_span_with_default(
    period: &Period,
    default: impl FnOnce(Timestamp) -> Timestamp,
    now: Timestamp,
) -> Result<TimeSpan, String> {
    let until = match period.until.as_deref() {
        Some(text) => time_input::parse_end(text, now, &Local)?,
        None => now,
    };
    let since = match period.since.as_deref() {
        Some(text) => time_input::parse(text, now, &Local)?,
        None => default(until),
    };
    check_not_empty(since, until)?;
    // Nothing was recorded before 1970, and the year 0 reads badly.
    let since = since.max(Timestamp(0));
    Ok(TimeSpan { since, until })
}

/// Refuses an empty time range, with both times in the zone in which they are typed.
pub(super) fn check_not_empty(since: Timestamp, until: Timestamp) -> Result<(), String> {
    if since < until {
        return Ok(());
    }
    let [since, until] = [since, until].map(|at| formatted(at, "%Y-%m-%d %H:%M:%S", Zone::Local));
    Err(format!("the time range is empty: from {since} to {until}"))
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
            Command::Audit(audit) => time_span(&audit.period, DEFAULT_HOURS, NOW)
                .map(|span| (span.since.to_rfc3339(), span.until.to_rfc3339())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn default_range_is_the_last_day() {
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
    fn absurd_times_never_crash() {
        let longest = spanned(&["--hours", "4294967295"]).map(|(since, _)| since);
        assert_eq!(longest.as_deref(), Ok("1970-01-01T00:00:00.000Z"));
        // In the zone of this host, as times are typed.
        let [since, until] = [-3_600, -7_200].map(|seconds| {
            let at = NOW.plus_seconds(seconds);
            formatted(at, "%Y-%m-%d %H:%M:%S", Zone::Local)
        });
        assert_eq!(
            spanned(&["--since", "1h ago", "--until", "2h ago"]),
            Err(format!("the time range is empty: from {since} to {until}"))
        );
        assert!(spanned(&["--since", "in a while"]).is_err());
        assert!(spanned(&["--since", "2100-01-01"]).is_err());
    }
}
