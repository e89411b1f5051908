//! `guard replay` and `guard test`: what rules would have done.

use super::{connect, files, now, open_connection};
use crate::args::{ReplayRules, TestRules};
use crate::connect::{Daemon, RequestTimeout, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::guard::MilderPolicies;
use crate::output::message::Messages;
use crate::output::spinner::Spinner;
use crate::output::style::OutputStyle;
use crate::output::text::Line;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use crate::time_input;
use chrono::Local;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::consequences::{milder_policies_by_person, milder_policy_for_violation};
use gpukill_policy::guard::lookback::lookback;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::{GuardMode, OpenViolation, ReplayReport, ReplayRequest, RuleSetSource};
use gpukill_proto::json::ReplayDocument;
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Timeout of a replay. A month of a large host takes some seconds, on a busy host minutes. The
/// daemon accepts no later deadline than this.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(615);

/// What a replay waits for.
const REPLAYED: &str = "gpukilld, which reads the history: this may take a minute";

/// Minimum number of seconds that a test evaluates.
const MIN_TEST_SECONDS: i64 = 24 * 3_600;

/// Seconds to add before the lookback of the rules, so that the replay covers the start of a
/// violation that is open now, and its warning.
const EXTRA_LOOKBACK_SECONDS: i64 = 3_600;

/// Replays rules and prints the result.
pub(super) fn run(
    wanted: &ReplayRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Error> {
    let now = now();
    let since = time_input::parse(&wanted.since, now, &Local).map_err(Error::Usage)?;
    let until = wanted.until.as_deref();
    let until = until.map(|text| time_input::parse_end(text, now, &Local).map_err(Error::Usage));
    let until = until.transpose()?;
    let span = (since, until.unwrap_or(now));
    let text = wanted.rules.as_ref();
    let text = text
        .map(|file| files::read(file, None, messages))
        .transpose()?;
    let (report, milder) = replay(text.as_deref(), span, settings, messages)?;
    let name = rules_name(wanted.rules.as_deref());
    print_replay(&report, settings, |style| {
        guard::replay_lines(&report, &name, &milder, style)
    })
}

/// Replays rules up to now and prints only open violations.
pub(super) fn run_test(
    wanted: &TestRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Error> {
    let now = now();
    let text = wanted.rules.as_ref();
    let text = text
        .map(|file| files::read(file, None, messages))
        .transpose()?;
    let (seconds, mode) = match &text {
        Some(text) => (test_seconds(text), effective_mode(text)),
        None => {
            let timeout = RequestTimeout::starting_now(settings.timeout);
            let daemon = connect(settings, timeout, messages)?;
            let (_, _, text) = daemon.rules(
                RulesKind::Guard,
                RequestTimeout::starting_now(settings.timeout),
            )?;
            (test_seconds(&text), effective_mode(&text))
        }
    };
    let span = (now.plus_seconds(-seconds), now);
    let (report, milder) = replay(text.as_deref(), span, settings, messages)?;
    print_replay(&report, settings, |style| {
        guard::test_lines(&report, (&milder, mode), now, style)
    })
}

/// The violations that are open now by these rules, which need not be in force.
///
/// # Errors
/// The replay failed.
pub(super) fn evaluate_open_violations(
    text: &str,
    daemon: &Daemon,
    settings: &Settings,
) -> Result<Vec<OpenViolation>, Error> {
    let now = now();
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let rules = offer_rules(daemon, Some(text), settings)?;
    let request = ReplayRequest {
        rules,
        since: now.plus_seconds(-test_seconds(text)),
        until: now,
    };
    let line = &mut Spinner::waiting_for(REPLAYED, settings);
    let report = call!(daemon, timeout, line, ReplayRules { request })?;
    Ok(report.open)
}

/// The mode of these rules, or the mode that their dry run simulates.
fn effective_mode(text: &str) -> Option<GuardMode> {
    let rules = parse(text).ok()?;
    Some(rules.mode.max(rules.armed_mode.mode()))
}

/// The number of seconds that a test of these rules evaluates. When the rules have mistakes,
/// other rules are in force and the default is used.
fn test_seconds(text: &str) -> i64 {
    let reach = parse(text)
        .map(|rules| lookback(&rules))
        .unwrap_or_default();
    let reach = i64::try_from(reach.as_secs()).unwrap_or(i64::MAX);
    reach
        .saturating_add(EXTRA_LOOKBACK_SECONDS)
        .max(MIN_TEST_SECONDS)
}

fn print_replay(
    report: &ReplayReport,
    settings: &Settings,
    lines: impl FnOnce(&OutputStyle) -> Vec<Line>,
) -> Result<Exit, Error> {
    match settings.output_format {
        Format::Json => print(&json::pretty(&ReplayDocument::from(report))?)?,
        // Only the settings can select formats that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let style = OutputStyle::for_stdout(settings);
            print_lines(&lines(&style), &style)?;
        }
    }
    Ok(Exit::Done)
}

fn replay(
    text: Option<&str>,
    (since, until): (Timestamp, Timestamp),
    settings: &Settings,
    messages: Messages,
) -> Result<(ReplayReport, MilderPolicies), Error> {
    if since >= until {
        let (since, until) = (since.to_rfc3339(), until.to_rfc3339());
        return Err(Error::Usage(format!(
            "the time range is empty: from {since} to {until}"
        )));
    }
    let daemon = open_connection(settings, messages)?;
    let rules = offer_rules(&daemon, text, settings)?;
    let request = ReplayRequest {
        rules,
        since,
        until,
    };
    let timeout = RequestTimeout::starting_now(settings.timeout.max(REPLAY_TIMEOUT));
    let line = &mut Spinner::waiting_for(REPLAYED, settings);
    let report = call!(daemon, timeout, line, ReplayRules { request })?;
    let text = match text {
        Some(text) => text.to_owned(),
        None => {
            let (_, _, text) = daemon.rules(
                RulesKind::Guard,
                RequestTimeout::starting_now(settings.timeout),
            )?;
            text
        }
    };
    Ok(apply_own_policies(report, &text))
}

/// A replay ignores the milder policies of users, so they are applied here from the rules. When
/// the rules have mistakes, other rules are in force and nothing is applied.
fn apply_own_policies(mut report: ReplayReport, text: &str) -> (ReplayReport, MilderPolicies) {
    let Ok(rules) = parse(text) else {
        return (report, MilderPolicies::new());
    };
    let milder = milder_policies_by_person(&report.records, &rules);
    let rules = CompiledRules::new(rules);
    for open in &mut report.open {
        open.own_policy = milder_policy_for_violation(open, &rules);
    }
    (report, milder)
}

fn offer_rules(
    daemon: &Daemon,
    text: Option<&str>,
    settings: &Settings,
) -> Result<RuleSetSource, Error> {
    match text {
        None => Ok(RuleSetSource::InForce),
        Some(text) => {
            daemon.offer_rules(text, RequestTimeout::starting_now(settings.timeout))?;
            Ok(RuleSetSource::Offered)
        }
    }
}

fn rules_name(file: Option<&Path>) -> String {
    file.map_or_else(
        || "the rules in force".to_owned(),
        |file| {
            let name = file.file_name().unwrap_or(file.as_os_str());
            name.to_string_lossy().into_owned()
        },
    )
}
