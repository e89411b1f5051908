//! `guard replay` and `guard test`: what rules would have done.

use super::{files, now, open_connection};
use crate::args::{ReplayRules, TestRules};
use crate::command::audit::check_not_empty;
use crate::connect::{Daemon, RequestTimeout, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::guard::MilderPolicies;
use crate::output::spinner::Spinner;
use crate::output::{guard, print_answer};
use crate::settings::Settings;
use crate::time_input;
use chrono::Local;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::consequences::{milder_policies_by_person, milder_policy_for_violation};
use gpukill_policy::guard::lookback::test_seconds;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::{GuardMode, ReplayReport, ReplayRequest, RuleSetSource};
use gpukill_proto::json::ReplayDocument;
use gpukill_proto::units::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Timeout of a replay. A month of a large host takes some seconds, on a busy host minutes. The
/// daemon accepts no later deadline than this.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(615);

/// What a replay waits for.
const REPLAYED: &str = "gpukilld, which reads the history: this may take a minute";

/// Replays rules and prints the result.
pub(super) fn run(wanted: &ReplayRules, settings: &Settings) -> Result<Exit, Error> {
    let now = now();
    let since = time_input::parse(&wanted.since, now, &Local).map_err(Error::Usage)?;
    let until = wanted.until.as_deref();
    let until = until.map(|text| time_input::parse_end(text, now, &Local).map_err(Error::Usage));
    let until = until.transpose()?;
    let span = (since, until.unwrap_or(now));
    let text = wanted.rules.as_ref();
    let text = text
        .map(|file| files::read(file, None, settings))
        .transpose()?;
    let (report, milder) = replay(text.as_deref(), span, settings)?;
    let name = rules_name(wanted.rules.as_deref());
    print_answer(
        settings,
        || ReplayDocument::from(&report),
        |style| guard::replay_lines(&report, &name, &milder, style),
    )?;
    Ok(Exit::Done)
}

/// Replays rules up to now and prints only open violations.
pub(super) fn run_test(wanted: &TestRules, settings: &Settings) -> Result<Exit, Error> {
    let now = now();
    let text = wanted.rules.as_ref();
    let text = text
        .map(|file| files::read(file, None, settings))
        .transpose()?;
    let tested = match &text {
        Some(text) => text.clone(),
        None => rules_in_force(&open_connection(settings)?, settings)?,
    };
    let span = (now.plus_seconds(-test_seconds(&tested)), now);
    let mode = effective_mode(&tested);
    let (report, milder) = replay(text.as_deref(), span, settings)?;
    print_answer(
        settings,
        || ReplayDocument::from(&report),
        |style| guard::test_lines(&report, (&milder, mode), now, style),
    )?;
    Ok(Exit::Done)
}

/// The mode of these rules, or the mode that their dry run simulates.
fn effective_mode(text: &str) -> Option<GuardMode> {
    let rules = parse(text).ok()?;
    Some(rules.mode.max(rules.armed_mode.mode()))
}

fn replay(
    text: Option<&str>,
    (since, until): (Timestamp, Timestamp),
    settings: &Settings,
) -> Result<(ReplayReport, MilderPolicies), Error> {
    check_not_empty(since, until).map_err(Error::Usage)?;
    let daemon = open_connection(settings)?;
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
        None => rules_in_force(&daemon, settings)?,
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

fn rules_in_force(daemon: &Daemon, settings: &Settings) -> Result<String, Error> {
    let timeout = settings.request_timeout();
    let (_, _, text) = daemon.rules(RulesKind::Guard, timeout)?;
    Ok(text)
}

fn offer_rules(
    daemon: &Daemon,
    text: Option<&str>,
    settings: &Settings,
) -> Result<RuleSetSource, Error> {
    match text {
        None => Ok(RuleSetSource::InForce),
        Some(text) => {
            daemon.offer_rules(text, settings.request_timeout())?;
            Ok(RuleSetSource::Offered)
        }
    }
}

fn rules_name(file: Option<&Path>) -> String {
    file.map_or_else(
        || "in force".to_owned(),
        |file| {
            let name = file.file_name().unwrap_or(file.as_os_str());
            format!("of {}", name.to_string_lossy())
        },
    )
}
