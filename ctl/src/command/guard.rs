//! `guard`: how it stands, whom it warns, its rules, and rules tried on the past.

mod edit;

mod files;

mod here;

mod replay;

mod snooze;

mod violations;

use super::{connect, now, rules};
use crate::args::{Guard, GuardCommand, PolicyCommand};
use crate::connect::{Patience, RulesOf};
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::document::GuardDocument;
use gpukill_proto::guard::GuardMode;
use gpukill_proto::guard::edit::{GuardEdit, PolicyKind};

/// Does what is asked of the guard.
pub(crate) fn run(
    wanted: &Guard,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let change = |edit, how| edit::run(edit, how, settings, messages);
    match &wanted.command {
        GuardCommand::Status(_) => status(settings, messages),
        GuardCommand::Violations(wanted) => violations::run(wanted, settings, messages),
        GuardCommand::Snooze(wanted) => snooze::run(wanted, settings, messages),
        GuardCommand::Test(wanted) => replay::test(wanted, settings, messages),
        GuardCommand::Replay(wanted) => replay::run(wanted, settings, messages),
        GuardCommand::Check(wanted) => files::check(wanted, settings, messages),
        GuardCommand::Config => rules::config(RulesOf::Guard, settings, messages),
        GuardCommand::Reference => files::reference(),
        GuardCommand::Enable(how) => change(set("global.enabled", "true"), how),
        GuardCommand::Disable(how) => change(GuardEdit::SetMode(GuardMode::Disabled), how),
        GuardCommand::DryRun(how) => change(GuardEdit::SetMode(GuardMode::DryRun), how),
        GuardCommand::Soft(how) => change(GuardEdit::SetMode(GuardMode::Soft), how),
        GuardCommand::Enforce(how) => change(GuardEdit::SetMode(GuardMode::Enforce), how),
        GuardCommand::ToggleDryRun(how) => change(GuardEdit::ToggleDryRun, how),
        GuardCommand::Set(wanted) => change(set(&wanted.key, &wanted.value), &wanted.edit),
        GuardCommand::User(policy) => {
            policy_edit(PolicyKind::User, &policy.command, settings, messages)
        }
        GuardCommand::Group(policy) => {
            policy_edit(PolicyKind::Group, &policy.command, settings, messages)
        }
        GuardCommand::Gpu(policy) => {
            policy_edit(PolicyKind::Gpu, &policy.command, settings, messages)
        }
        GuardCommand::Time(policy) => {
            policy_edit(PolicyKind::Time, &policy.command, settings, messages)
        }
        GuardCommand::Rule(policy) => {
            policy_edit(PolicyKind::Rule, &policy.command, settings, messages)
        }
        GuardCommand::Export(wanted) => files::export(wanted, settings, messages),
        GuardCommand::Import(wanted) => files::import(wanted, settings, messages),
    }
}

fn set(key: &str, value: &str) -> GuardEdit {
    GuardEdit::SetKey {
        path: key.to_owned(),
        value: value.to_owned(),
    }
}

fn policy_edit(
    kind: PolicyKind,
    command: &PolicyCommand,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let (edit, how) = match command {
        PolicyCommand::Set(wanted) => {
            let edit = GuardEdit::SetPolicy {
                kind,
                name: wanted.name.clone(),
                fields: wanted.fields(kind).map_err(Failure::Usage)?,
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

fn status(settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let status = daemon.status(Patience::lasting(settings.timeout))?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&GuardDocument::from(&status.guard))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&guard::status(&status.guard, status.now, &look), &look)?;
        }
    }
    Ok(Exit::Done)
}
