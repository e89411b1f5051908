//! `guard`: status, violations, the rules, and rules tried on the past.

mod edit;
mod files;
mod host_warnings;
mod replay;
mod violations;

use super::{connect, now, open_connection, rules};
use crate::args::{Guard, GuardCommand, PolicyCommand, Snooze};
use crate::connect::{Daemon, Mode, RequestTimeout, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::output::style::OutputStyle;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_policy::guard::rules::description::{PolicyDescription, describe_policies};
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::edit::{GuardEdit, PolicyKind};
use gpukill_proto::guard::{GuardMode, GuardReport};
use gpukill_proto::json::GuardDocument;

/// Runs a subcommand of `guard`.
pub(crate) fn run(wanted: &Guard, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let change = |edit, how| edit::run(edit, how, settings, messages);
    match &wanted.command {
        GuardCommand::Status(_) => run_status(settings, messages),
        GuardCommand::Violations(wanted) => violations::run(wanted, settings, messages),
        GuardCommand::Snooze(wanted) => run_snooze(wanted, settings, messages),
        GuardCommand::Test(wanted) => replay::run_test(wanted, settings, messages),
        GuardCommand::Replay(wanted) => replay::run(wanted, settings, messages),
        GuardCommand::Check(wanted) => files::check(wanted, settings, messages),
        GuardCommand::Config => rules::print_config(RulesKind::Guard, settings, messages),
        GuardCommand::Reference => files::print_reference(),
        GuardCommand::Enable(how) => change(set_key_edit("global.enabled", "true"), how),
        GuardCommand::Disable(how) => change(GuardEdit::SetMode(GuardMode::Disabled), how),
        GuardCommand::DryRun(how) => change(GuardEdit::SetMode(GuardMode::DryRun), how),
        GuardCommand::Soft(how) => change(GuardEdit::SetMode(GuardMode::Soft), how),
        GuardCommand::Enforce(how) => change(GuardEdit::SetMode(GuardMode::Enforce), how),
        GuardCommand::ToggleDryRun(how) => change(GuardEdit::ToggleDryRun, how),
        GuardCommand::Set(wanted) => change(set_key_edit(&wanted.key, &wanted.value), &wanted.edit),
        GuardCommand::User(policy) => {
            run_policy_edit(PolicyKind::User, &policy.command, settings, messages)
        }
        GuardCommand::Group(policy) => {
            run_policy_edit(PolicyKind::Group, &policy.command, settings, messages)
        }
        GuardCommand::Gpu(policy) => {
            run_policy_edit(PolicyKind::Gpu, &policy.command, settings, messages)
        }
        GuardCommand::Time(policy) => {
            run_policy_edit(PolicyKind::Time, &policy.command, settings, messages)
        }
        GuardCommand::Rule(policy) => {
            run_policy_edit(PolicyKind::Rule, &policy.command, settings, messages)
        }
        GuardCommand::Export(wanted) => files::export(wanted, settings, messages),
        GuardCommand::Import(wanted) => files::import(wanted, settings, messages),
    }
}

fn set_key_edit(key: &str, value: &str) -> GuardEdit {
    GuardEdit::SetKey {
        path: key.to_owned(),
        value: value.to_owned(),
    }
}

fn run_policy_edit(
    kind: PolicyKind,
    command: &PolicyCommand,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Error> {
    let (edit, how) = match command {
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
    };
    edit::run(edit, how, settings, messages)
}

/// Postpones the end of a job, or shows the effect.
fn run_snooze(wanted: &Snooze, settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let daemon = open_connection(settings, messages)?;
    let (pid, is_dry_run) = (wanted.process.pid(), wanted.dry_run);
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let snoozed = call!(daemon, timeout, Snooze { pid, is_dry_run })?;
    let mode = Mode::from_dry_run(is_dry_run);
    let style = OutputStyle::for_stdout(settings);
    print_lines(&guard::snooze_lines(&snoozed, mode, now(), &style), &style)?;
    Ok(Exit::Done)
}

fn run_status(settings: &Settings, messages: Messages) -> Result<Exit, Error> {
    let daemon = open_connection(settings, messages)?;
    let timeout = RequestTimeout::starting_now(settings.timeout);
    let status = call!(daemon, timeout, Status {})?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&GuardDocument::from(&status.guard))?)?,
        // Only the settings can select formats that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let policies = policies_in_force(&daemon, &status.guard, timeout);
            let open = edit::open_violations(&daemon, status.now, timeout);
            let open = open.map_or_else(|_| Vec::new(), |page| page.open);
            let style = OutputStyle::for_stdout(settings);
            print_lines(
                &guard::status_lines(&status.guard, &policies, &open, status.now, &style),
                &style,
            )?;
        }
    }
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
