//! `guard replay` and `guard test`: what rules would have done.

use super::{connect, files, now};
use crate::args::{ReplayRules, TestRules};
use crate::connect::{Daemon, Meanwhile, Patience, RulesOf};
use crate::exit::{Exit, Failure};
use crate::moment;
use crate::output::guard::Spared;
use crate::output::line::Line;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use chrono::Local;
use gpukill_policy::guard::Rulebook;
use gpukill_policy::guard::affected::{milder, spared};
use gpukill_policy::guard::reach::reach;
use gpukill_policy::guard::read::read;
use gpukill_proto::document::ReplayDocument;
use gpukill_proto::guard::{GuardMode, OpenViolation, ReplayReport, ReplayRequest, RulesFrom};
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

/// A month of a large box takes some seconds, and on one that is busy with other
/// things minutes. The daemon takes no longer deadline than this.
const REPLAYING: Duration = Duration::from_secs(615);

/// Whoever has waited for so long may wonder.
const QUIET: Duration = Duration::from_secs(2);

/// So many seconds are judged for a test at least.
const TESTED: i64 = 24 * 3_600;

/// So many before what the rules look back over: whoever breaks one is seen to break
/// it before now, and warned.
const BEFORE: i64 = 3_600;

/// Replays and prints.
pub(super) fn run(
    wanted: &ReplayRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let now = now();
    let parsed = |text: &str| moment::parse(text, now, &Local).map_err(Failure::Usage);
    let since = parsed(&wanted.since)?;
    let until = wanted.until.as_deref().map(parsed).transpose()?;
    let span = (since, until.unwrap_or(now));
    let text = wanted.rules.as_ref();
    let text = text
        .map(|file| files::read(file, None, messages))
        .transpose()?;
    let (report, spared) = replay(text.as_deref(), span, settings, messages)?;
    let name = named(wanted.rules.as_deref());
    show(&report, settings, |look| {
        guard::replay(&report, &name, &spared, look)
    })
}

/// The same up to now, of which only what goes on is told.
pub(super) fn test(
    wanted: &TestRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let now = now();
    let text = wanted.rules.as_ref();
    let text = text
        .map(|file| files::read(file, None, messages))
        .transpose()?;
    let (judged, mode) = match &text {
        Some(text) => (judged(text), acts(text)),
        None => {
            let patience = Patience::lasting(settings.timeout);
            let daemon = connect(settings, patience, messages)?;
            let (_, _, text) = daemon.rules(RulesOf::Guard, Patience::lasting(settings.timeout))?;
            (judged(&text), acts(&text))
        }
    };
    let span = (now.plus_seconds(-judged), now);
    let (report, spared) = replay(text.as_deref(), span, settings, messages)?;
    show(&report, settings, |look| {
        guard::tested(&report, (&spared, mode), now, look)
    })
}

/// The violations that go on now by these rules, which need not be in force.
///
/// # Errors
/// Why they cannot be found out.
pub(super) fn open_now(
    text: &str,
    daemon: &Daemon,
    settings: &Settings,
    messages: Messages,
) -> Result<Vec<OpenViolation>, Failure> {
    let now = now();
    let patience = Patience::lasting(settings.timeout);
    let rules = offered(daemon, Some(text), settings)?;
    let request = ReplayRequest {
        rules,
        since: now.plus_seconds(-judged(text)),
        until: now,
    };
    let replayed = daemon.replay_rules(&request, patience, &mut Patiently::new(messages));
    replayed.map(|report| report.open)
}

/// In which mode these rules act, or would after their dry run.
fn acts(text: &str) -> Option<GuardMode> {
    let rules = read(text).ok()?;
    Some(rules.mode.max(rules.rehearsed.mode()))
}

/// How many seconds are judged for a test of these rules. With mistakes in them, it is
/// other rules that are in force, of which nothing is known here.
fn judged(text: &str) -> i64 {
    let reach = read(text).map(|rules| reach(&rules)).unwrap_or_default();
    let reach = i64::try_from(reach.as_secs()).unwrap_or(i64::MAX);
    reach.saturating_add(BEFORE).max(TESTED)
}

fn show(
    report: &ReplayReport,
    settings: &Settings,
    lines: impl FnOnce(&Look) -> Vec<Line>,
) -> Result<Exit, Failure> {
    match settings.output_format {
        Format::Json => print(&json::pretty(&ReplayDocument::from(report))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&lines(&look), &look)?;
        }
    }
    Ok(Exit::Done)
}

fn replay(
    text: Option<&str>,
    (since, until): (Timestamp, Timestamp),
    settings: &Settings,
    messages: Messages,
) -> Result<(ReplayReport, Spared), Failure> {
    if since >= until {
        let (since, until) = (since.to_rfc3339(), until.to_rfc3339());
        return Err(Failure::Usage(format!(
            "the time is empty: from {since} to {until}"
        )));
    }
    let patience = || Patience::lasting(settings.timeout.max(REPLAYING));
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let rules = offered(&daemon, text, settings)?;
    let request = ReplayRequest {
        rules,
        since,
        until,
    };
    let report = daemon.replay_rules(&request, patience(), &mut Patiently::new(messages))?;
    let text = match text {
        Some(text) => text.to_owned(),
        None => {
            let (_, _, text) = daemon.rules(RulesOf::Guard, Patience::lasting(settings.timeout))?;
            text
        }
    };
    Ok(with_own_policies(report, &text))
}

/// Says once what is waited for where that takes long.
struct Patiently {
    messages: Messages,
    is_said: bool,
}

impl Patiently {
    const fn new(messages: Messages) -> Self {
        Self {
            messages,
            is_said: false,
        }
    }
}

impl Meanwhile for Patiently {
    fn quiet(&self) -> Option<Duration> {
        (!self.is_said).then_some(QUIET)
    }

    fn note(&mut self) {
        self.is_said = true;
        self.messages
            .wait("reading the history, this may take a minute");
    }
}

/// A replay rehearses for everybody: who is spared by their own policy, the rules say. With
/// mistakes in them, it is other rules that are in force, of which nothing is known here.
fn with_own_policies(mut report: ReplayReport, text: &str) -> (ReplayReport, Spared) {
    let Ok(rules) = read(text) else {
        return (report, Spared::new());
    };
    let spared = spared(&report.records, &rules);
    let book = Rulebook::of(rules);
    for open in &mut report.open {
        open.own_policy = milder(open, &book);
    }
    (report, spared)
}

fn offered(daemon: &Daemon, text: Option<&str>, settings: &Settings) -> Result<RulesFrom, Failure> {
    match text {
        None => Ok(RulesFrom::Force),
        Some(text) => {
            let patience = Patience::lasting(settings.timeout);
            daemon.offer_rules(text, patience)?;
            Ok(RulesFrom::Offered)
        }
    }
}

fn named(file: Option<&Path>) -> String {
    file.map_or_else(
        || "the rules in force".to_owned(),
        |file| {
            let name = file.file_name().unwrap_or(file.as_os_str());
            name.to_string_lossy().into_owned()
        },
    )
}
