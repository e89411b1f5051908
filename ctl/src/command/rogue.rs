//! `rogue`: suspicious processes, and the rules for their detection.

use super::list::user_lookup::{local_users, unknown_users};
use super::rules::{self, CheckedRules, EditConsequences, HostChecks};
use super::{now, open_connection};
use crate::args::{CheckRules, EditOptions, ExemptionArgs, ImportRules, Rogue, RogueCommand, Scan};
use crate::connect::{Daemon, Mode, RequestTimeout, RulesChange, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::guard::rules::{
    Difference, EditView, print_rules, rogue_statement, rogue_summary,
};
use crate::output::{print_answer, rogue};
use crate::rules_files::ROGUE_CODEC;
use crate::settings::Settings;
use gpukill_policy::rogue::lints::{lint, lint_unknown_users, named_users};
use gpukill_policy::rogue::read::{print_defaults, read};
use gpukill_policy::rogue::rules::RogueRules;
use gpukill_proto::guard::EditReport;
use gpukill_proto::guard::edit::Lint;
use gpukill_proto::rogue::RogueEdit;
use std::time::Duration;

/// A month of a large host takes seconds, and longer when other clients read the history too.
const HISTORY_SCAN_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a subcommand of `rogue`.
pub(crate) fn run(wanted: &Rogue, settings: &Settings) -> Result<Exit, Error> {
    let change = |edit, options| run_edit(edit, options, settings);
    match &wanted.command {
        RogueCommand::Scan(wanted) => run_scan(wanted, settings),
        RogueCommand::Config => rules::print_config(RulesKind::Rogues, settings),
        RogueCommand::Reference => print_rules(&print_defaults()).map(|()| Exit::Done),
        RogueCommand::Check(wanted) => check(wanted, settings),
        RogueCommand::Set(wanted) => {
            let edit = RogueEdit::SetKey {
                path: wanted.key.clone(),
                value: wanted.value.clone(),
            };
            change(edit, &wanted.edit)
        }
        RogueCommand::Allow(ExemptionArgs { by, name, edit }) => {
            change(RogueEdit::Allow((*by).into(), name.clone()), edit)
        }
        RogueCommand::Disallow(ExemptionArgs { by, name, edit }) => {
            change(RogueEdit::Disallow((*by).into(), name.clone()), edit)
        }
        RogueCommand::Export(wanted) => {
            rules::export(RulesKind::Rogues, ROGUE_CODEC, wanted, settings)
        }
        RogueCommand::Import(wanted) => import(wanted, settings),
    }
}

/// Prints suspicious processes, current and recent. The exit code does not depend on whether
/// there are findings.
fn run_scan(wanted: &Scan, settings: &Settings) -> Result<Exit, Error> {
    let daemon = open_connection(settings)?;
    let timeout = RequestTimeout::starting_now(settings.timeout.max(HISTORY_SCAN_TIMEOUT));
    let hours = wanted.hours;
    let report = call!(daemon, timeout, Scan { hours })?;
    print_answer(
        settings,
        || rogue::document(&report),
        |style| rogue::scan_lines(&report, now(), style),
    )?;
    Ok(Exit::Done)
}

/// Makes one edit, or shows what it would change.
fn run_edit(asked: RogueEdit, options: &EditOptions, settings: &Settings) -> Result<Exit, Error> {
    let daemon = open_connection(settings)?;
    let timeout = settings.request_timeout();
    let mode = Mode::from_dry_run(options.dry_run);
    let report = daemon.edit_rules(RulesChange::Rogues(Some(&asked)), None, mode, timeout)?;
    let view = EditView {
        doing: mode,
        difference: Difference::from_options(options),
        statement: &rogue_statement(&asked),
    };
    rules::print_edit(&report, (view, None), settings, || edit_warnings(&asked))
}

/// Warnings about users that an edit exempts and that do not exist on this host.
fn edit_warnings(asked: &RogueEdit) -> Vec<Lint> {
    let now = now();
    match gpukill_policy::rogue::edit::edit("", asked, now) {
        Ok(text) => text_warnings(&text),
        // A removal names what exists in the rules.
        Err(_) => Vec::new(),
    }
}

/// Warnings about the users in a valid text of rules.
fn text_warnings(text: &str) -> Vec<Lint> {
    read(text).map_or_else(|_| Vec::new(), |rules| user_warnings(&rules))
}

fn user_warnings(rules: &RogueRules) -> Vec<Lint> {
    let unknown = unknown_users(named_users(rules));
    let known = match unknown.is_empty() {
        true => Vec::new(),
        false => local_users(),
    };
    lint_unknown_users(rules, &unknown, &known)
}

/// Reports every mistake in a file, and rules that are probably unintended. Needs no daemon.
fn check(wanted: &CheckRules, settings: &Settings) -> Result<Exit, Error> {
    rules::check(
        (RulesKind::Rogues, ROGUE_CODEC),
        wanted,
        settings,
        |text: &str| {
            // The file was read without a mistake.
            let rules = read(text).unwrap_or_default();
            let lints = lint(&rules).into_iter();
            CheckedRules {
                summary: rogue_summary(&rules),
                lints: lints.chain(user_warnings(&rules)).collect(),
            }
        },
    )
}

/// Replaces all rules by those of a file, after showing what changes.
fn import(wanted: &ImportRules, settings: &Settings) -> Result<Exit, Error> {
    let text = rules::read_rules(ROGUE_CODEC, &wanted.file, wanted.format, settings)?;
    rules::import(RulesKind::Rogues, &text, wanted, settings, &RogueHostChecks)
}

/// The host checks for rogue rules. Rogue rules end no process by themselves.
struct RogueHostChecks;

impl HostChecks for RogueHostChecks {
    fn warnings(&self, text: &str, _: &Daemon, _: RequestTimeout) -> Vec<Lint> {
        text_warnings(text)
    }

    fn consequences(
        &self,
        text: &str,
        _: &EditReport,
        _: &Daemon,
        _: RequestTimeout,
    ) -> EditConsequences {
        EditConsequences {
            statement: read(text).map_or_else(|_| String::new(), |rules| rogue_summary(&rules)),
            effect: None,
        }
    }
}
