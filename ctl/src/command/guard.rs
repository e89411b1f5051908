//! `guard`: status, violations, the rules, and rules tried on the past.

mod edit;
mod files;
mod host_warnings;
mod replay;
mod violations;

use super::{connect, now, open_connection, rules};
use crate::args::{EditOptions, Guard, GuardCommand, Policy, PolicyCommand, Snooze};
use crate::connect::{Daemon, Mode, RequestTimeout, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::guard::rules::print_rules;
use crate::output::style::OutputStyle;
use crate::output::{guard, print_answer, print_lines};
use crate::rules_files::GUARD_CODEC;
use crate::settings::Settings;
use gpukill_policy::guard::rules::description::{PolicyDescription, describe_policies};
use gpukill_policy::guard::rules::parse::{parse, print_reference};
use gpukill_proto::guard::edit::{GuardEdit, PolicyKind};
use gpukill_proto::guard::{GuardMode, GuardReport};
use gpukill_proto::json::GuardDocument;

/// Runs a subcommand of `guard`.
pub(crate) fn run(wanted: &Guard, settings: &Settings) -> Result<Exit, Error> {
    let change = |edit, how| edit::run(edit, how, settings);
    let change_policy = |kind, policy: &Policy| {
        let (edit, how) = policy_edit(kind, &policy.command)?;
        edit::run(edit, how, settings)
    };
    match &wanted.command {
        GuardCommand::Status(_) => run_status(settings),
        GuardCommand::Violations(wanted) => violations::run(wanted, settings),
        GuardCommand::Snooze(wanted) => run_snooze(wanted, settings),
        GuardCommand::Test(wanted) => replay::run_test(wanted, settings),
        GuardCommand::Replay(wanted) => replay::run(wanted, settings),
        GuardCommand::Check(wanted) => files::check(wanted, settings),
        GuardCommand::Config => rules::print_config(RulesKind::Guard, settings),
        GuardCommand::Reference => print_rules(&print_reference()).map(|()| Exit::Done),
        GuardCommand::Enable(how) => change(set_key_edit("global.enabled", "true"), how),
        GuardCommand::Disable(how) => change(GuardEdit::SetMode(GuardMode::Disabled), how),
        GuardCommand::DryRun(how) => change(GuardEdit::SetMode(GuardMode::DryRun), how),
        GuardCommand::Soft(how) => change(GuardEdit::SetMode(GuardMode::Soft), how),
        GuardCommand::Enforce(how) => change(GuardEdit::SetMode(GuardMode::Enforce), how),
        GuardCommand::ToggleDryRun(how) => change(GuardEdit::ToggleDryRun, how),
        GuardCommand::Set(wanted) => change(set_key_edit(&wanted.key, &wanted.value), &wanted.edit),
        GuardCommand::User(policy) => change_policy(PolicyKind::User, policy),
        GuardCommand::Group(policy) => change_policy(PolicyKind::Group, policy),
        GuardCommand::Gpu(policy) => change_policy(PolicyKind::Gpu, policy),
        GuardCommand::Time(policy) => change_policy(PolicyKind::Time, policy),
        GuardCommand::Rule(policy) => change_policy(PolicyKind::Rule, policy),
        GuardCommand::Export(wanted) => {
            rules::export(RulesKind::Guard, GUARD_CODEC, wanted, settings)
        }
        GuardCommand::Import(wanted) => files::import(wanted, settings),
    }
}

fn set_key_edit(key: &str, value: &str) -> GuardEdit {
    GuardEdit::SetKey {
        path: key.to_owned(),
        value: value.to_owned(),
    }
}

fn policy_edit(
    kind: PolicyKind,
    command: &PolicyCommand,
) -> Result<(GuardEdit, &EditOptions), Error> {
    Ok(match command {
        PolicyCommand::Set(wanted) => {
            let edit = GuardEdit::SetPolicy {
                kind,
                name: wanted.name.clone(),
                fields: wanted.key_values(kind).map_err(Error::Usage)?,
            };
            (edit, &wanted.edit)
        }
        PolicyCommand::Remove(wanted) => {
            let edit = GuardEdit::RemovePolicy {
                kind,
                name: wanted.name.clone(),
            };
            (edit, &wanted.edit)
        }
    })
}

/// Postpones the end of a job, or shows the effect.
fn run_snooze(wanted: &Snooze, settings: &Settings) -> Result<Exit, Error> {
    let daemon = open_connection(settings)?;
    let (pid, is_dry_run) = (wanted.process.pid(), wanted.dry_run);
    let timeout = settings.request_timeout();
    let snoozed = call!(daemon, timeout, Snooze { pid, is_dry_run })?;
    let mode = Mode::from_dry_run(is_dry_run);
    let style = OutputStyle::for_stdout(settings);
    print_lines(&guard::snooze_lines(&snoozed, mode, now(), &style), &style)?;
    Ok(Exit::Done)
}

fn run_status(settings: &Settings) -> Result<Exit, Error> {
    let daemon = open_connection(settings)?;
    let timeout = settings.request_timeout();
    let status = call!(daemon, timeout, Status {})?;
    print_answer(
        settings,
        || GuardDocument::from(&status.guard),
        |style| {
            let policies = policies_in_force(&daemon, &status.guard, timeout);
            let open = edit::open_violations(&daemon, status.now, timeout);
            let open = open.map_or_else(|_| Vec::new(), |page| page.open);
            let mut lines = guard::status_lines(&status.guard, &policies, &open, status.now, style);
            lines.extend(guard::hidden_note(&status));
            lines
        },
    )?;
    Ok(Exit::Done)
}

/// The policies in force; none when the caller may not read them, or when the file has others.
fn policies_in_force(
    daemon: &Daemon,
    report: &GuardReport,
    timeout: RequestTimeout,
) -> Vec<PolicyDescription> {
    match daemon.rules(RulesKind::Guard, timeout) {
        Ok((_, revision, text)) if revision == report.revision => {
            parse(&text).map_or_else(|_| Vec::new(), |rules| describe_policies(&rules))
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}
