//! Checks and imports files of the guard's rules.

use super::edit::{edit_consequences, edited_rules};
use super::{connect, host_warnings};
use crate::args::{CheckRules, ImportRules, RulesFormat};
use crate::command::rules::{self, CheckedRules, EditConsequences, HostChecks};
use crate::connect::{Daemon, RequestTimeout, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::guard::rules::guard_summary;
use crate::rules_files::GUARD_CODEC;
use crate::settings::Settings;
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::rules::lint::lint;
use gpukill_policy::guard::rules::parse;
use gpukill_proto::guard::EditReport;
use gpukill_proto::guard::edit::{GuardEdit, Lint};
use std::path::Path;
use std::time::Duration;

/// Reports every mistake in a file, and rules that can never apply.
pub(super) fn check(wanted: &CheckRules, settings: &Settings) -> Result<Exit, Error> {
    rules::check(
        (RulesKind::Guard, GUARD_CODEC),
        wanted,
        settings,
        |text: &str| {
            // The file was read without a mistake.
            let rules = parse::parse(text).unwrap_or_default();
            let host_warnings = rule_warnings(&rules, settings);
            CheckedRules {
                summary: guard_summary(&rules),
                lints: lint(&rules).into_iter().chain(host_warnings).collect(),
            }
        },
    )
}

/// Warnings about rules that mean nothing on this host. Unknown GPUs are reported only when a
/// daemon answers; without a daemon the file is checked nevertheless.
fn rule_warnings(rules: &RuleSet, settings: &Settings) -> Vec<Lint> {
    /// A running daemon answers at once, and a missing daemon is not worth waiting for.
    const MAX_TIMEOUT: Duration = Duration::from_secs(1);
    let timeout = RequestTimeout::starting_now(settings.timeout.min(MAX_TIMEOUT));
    match connect(settings, timeout) {
        Ok(daemon) => host_warnings::all_warnings(rules, &daemon, timeout),
        Err(_) => host_warnings::user_warnings(rules),
    }
}

/// Reads the rules of a file as TOML. Rules without a meaning here are reported.
pub(super) fn read(
    file: &Path,
    typed: Option<RulesFormat>,
    settings: &Settings,
) -> Result<String, Error> {
    rules::read_rules(GUARD_CODEC, file, typed, settings)
}

/// Replaces all rules by those of a file, after showing what changes.
pub(super) fn import(wanted: &ImportRules, settings: &Settings) -> Result<Exit, Error> {
    let text = read(&wanted.file, wanted.format, settings)?;
    rules::import(RulesKind::Guard, &text, wanted, settings, &GuardHostChecks)
}

/// The host checks for rules of the guard.
struct GuardHostChecks;

impl HostChecks for GuardHostChecks {
    fn warnings(&self, text: &str, daemon: &Daemon, timeout: RequestTimeout) -> Vec<Lint> {
        // The daemon has read the rules without a mistake.
        match parse::parse(text) {
            Ok(rules) => host_warnings::all_warnings(&rules, daemon, timeout),
            Err(_) => Vec::new(),
        }
    }

    fn consequences(
        &self,
        text: &str,
        planned: &EditReport,
        daemon: &Daemon,
        timeout: RequestTimeout,
    ) -> EditConsequences {
        let held = daemon.rules(RulesKind::Guard, timeout);
        let before = call!(daemon, timeout, Status {});
        match (held, before) {
            (Ok((_, _, held)), Ok(before)) => {
                let asked = GuardEdit::Replace(text.to_owned());
                let new = edited_rules(&asked, &held);
                edit_consequences((&asked, &held), new, planned, &before.guard)
            }
            (Err(_), _) | (_, Err(_)) => EditConsequences::default(),
        }
    }
}
