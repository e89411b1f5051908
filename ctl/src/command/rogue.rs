//! `rogue`: whom the daemon takes for a rogue, and the rules for that.

mod scan;

use super::rules::{self, Checked, OnThisBox};
use super::{connect, list, now};
use crate::args::{Allowing, CheckRules, Edit, ImportRules, Rogue, RogueCommand};
use crate::connect::{Change, Daemon, Doing, Patience, RulesOf};
use crate::exit::{Exit, Failure};
use crate::output::guard::Turn;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::print_lines;
use crate::output::rules::{edited, of_rogues, print_rules};
use crate::rules_files::ROGUES;
use crate::settings::Settings;
use gpukill_policy::rogue::odd::{nobodys, users, warnings};
use gpukill_policy::rogue::read::{print_defaults, read};
use gpukill_policy::rogue::rules::Rules;
use gpukill_proto::guard::edit::Warning;
use gpukill_proto::rogue::RogueEdit;

/// Does what is asked.
pub(crate) fn run(
    wanted: &Rogue,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let change = |edit, how| change(edit, how, settings, messages);
    match &wanted.command {
        RogueCommand::Scan(wanted) => scan::run(wanted, settings, messages),
        RogueCommand::Config => rules::config(RulesOf::Rogues, settings, messages),
        RogueCommand::Reference => reference(),
        RogueCommand::Check(wanted) => check(wanted, settings, messages),
        RogueCommand::Set(wanted) => {
            let edit = RogueEdit::SetKey {
                path: wanted.key.clone(),
                value: wanted.value.clone(),
            };
            change(edit, &wanted.edit)
        }
        RogueCommand::Allow(Allowing { by, name, edit }) => {
            change(RogueEdit::Allow((*by).into(), name.clone()), edit)
        }
        RogueCommand::Disallow(Allowing { by, name, edit }) => {
            change(RogueEdit::Disallow((*by).into(), name.clone()), edit)
        }
        RogueCommand::Export(wanted) => {
            rules::export(RulesOf::Rogues, ROGUES, wanted, settings, messages)
        }
        RogueCommand::Import(wanted) => import(wanted, settings, messages),
    }
}

/// Makes one edit, or says what it would change.
fn change(
    asked: RogueEdit,
    how: &Edit,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let patience = || Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience(), messages)?;
    let doing = match how.dry_run {
        true => Doing::Saying,
        false => Doing::Doing,
    };
    let report = daemon.edit_rules(Change::Rogues(Some(&asked)), None, doing, patience())?;
    let look = Look::of_stdout(settings);
    print_lines(&edited(&report, doing, &look), &look)?;
    for warning in &report.warnings {
        messages.warn(warning);
    }
    for warning in about_edit(&asked) {
        messages.warn(&warning.to_string());
    }
    Ok(Exit::Done)
}

/// Whom an edit allows though nobody on this box is called so.
fn about_edit(asked: &RogueEdit) -> Vec<Warning> {
    let now = now();
    match gpukill_policy::rogue::edit::edit("", asked, now) {
        Ok(text) => about_text(&text),
        // What is taken away was there.
        Err(_) => Vec::new(),
    }
}

/// The same of a text that is right.
fn about_text(text: &str) -> Vec<Warning> {
    read(text).map_or_else(|_| Vec::new(), |rules| about_users(&rules))
}

fn about_users(rules: &Rules) -> Vec<Warning> {
    nobodys(rules, &list::person::strangers(users(rules)))
}

/// Every mistake in a file, and what of it is hardly meant. Asks no daemon.
fn check(wanted: &CheckRules, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    rules::check(
        (RulesOf::Rogues, ROGUES),
        wanted,
        settings,
        messages,
        |text: &str| {
            // It was read without a mistake.
            let rules = read(text).unwrap_or_default();
            let odd = warnings(&rules).into_iter();
            Checked {
                comes_to: of_rogues(&rules),
                odd: odd.chain(about_users(&rules)).collect(),
            }
        },
    )
}

/// Puts the rules of a file in the place of all, after it was shown what changes.
fn import(wanted: &ImportRules, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let text = rules::read(ROGUES, &wanted.file, wanted.format, messages)?;
    rules::import(
        RulesOf::Rogues,
        &text,
        wanted,
        settings,
        messages,
        &RogueRules,
    )
}

/// What rules on rogues come to on this box: they end nobody by themselves.
struct RogueRules;

impl OnThisBox for RogueRules {
    fn warnings(&self, text: &str, _: &Daemon, _: Patience) -> Vec<Warning> {
        about_text(text)
    }

    fn affected(&self, _: &str, _: &Daemon, _: Patience) -> Option<Turn> {
        None
    }
}

/// Every key with its default, in a file to begin with. Asks no daemon.
fn reference() -> Result<Exit, Failure> {
    print_rules(&print_defaults())?;
    Ok(Exit::Done)
}
