//! Files of the guard's rules: checked, exported and imported.

use super::edit::edited;
use super::{connect, here};
use crate::args::{CheckRules, ExportRules, ImportRules, RulesFormat};
use crate::command::rules::{self, Checked, OnThisBox};
use crate::connect::{Daemon, Patience, RulesOf};
use crate::exit::{Exit, Failure};
use crate::output::guard::Turn;
use crate::output::message::Messages;
use crate::output::rules::{of_guard, print_rules};
use crate::rules_files::GUARD;
use crate::settings::Settings;
use gpukill_policy::guard::check::warnings;
use gpukill_policy::guard::read;
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::edit::{GuardEdit, Warning};
use std::path::Path;
use std::time::Duration;

/// Every mistake in a file, and what of it can never hold.
pub(super) fn check(
    wanted: &CheckRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    rules::check(
        (RulesOf::Guard, GUARD),
        wanted,
        settings,
        messages,
        |text: &str| {
            // It was read without a mistake.
            let rules = read::read(text).unwrap_or_default();
            let here = about_this_box(&rules, settings, messages);
            Checked {
                comes_to: of_guard(&rules),
                odd: warnings(&rules).into_iter().chain(here).collect(),
            }
        },
    )
}

/// What means nothing here: where a daemon answers, also which GPUs this box has not got.
/// A file is checked without one too.
fn about_this_box(rules: &Rules, settings: &Settings, messages: Messages) -> Vec<Warning> {
    /// A daemon that is there answers at once, and one that is not is not waited for.
    const PATIENCE: Duration = Duration::from_secs(1);
    let patience = Patience::lasting(settings.timeout.min(PATIENCE));
    match connect(settings, patience, messages) {
        Ok(daemon) => here::about_all(rules, &daemon, patience),
        Err(_) => here::about_users(rules),
    }
}

/// The rules that a file says, as TOML. What of it has no meaning here is told.
///
/// # Errors
/// When it cannot be read, or has mistakes.
pub(super) fn read(
    file: &Path,
    typed: Option<RulesFormat>,
    messages: Messages,
) -> Result<String, Failure> {
    rules::read(GUARD, file, typed, messages)
}

/// Writes the rules as they are written, in one of the forms.
pub(super) fn export(
    wanted: &ExportRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    rules::export(RulesOf::Guard, GUARD, wanted, settings, messages)
}

/// Puts the rules of a file in the place of all, after it was shown what changes.
pub(super) fn import(
    wanted: &ImportRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let text = read(&wanted.file, wanted.format, messages)?;
    let on_this_box = GuardRules { settings, messages };
    rules::import(
        RulesOf::Guard,
        &text,
        wanted,
        settings,
        messages,
        &on_this_box,
    )
}

/// What rules of the guard come to on this box.
struct GuardRules<'a> {
    settings: &'a Settings,
    messages: Messages,
}

impl OnThisBox for GuardRules<'_> {
    fn warnings(&self, text: &str, daemon: &Daemon, patience: Patience) -> Vec<Warning> {
        // The daemon has read them without a mistake.
        match read::read(text) {
            Ok(rules) => here::about_all(&rules, daemon, patience),
            Err(_) => Vec::new(),
        }
    }

    fn affected(&self, text: &str, daemon: &Daemon, patience: Patience) -> Option<Turn> {
        let (_, _, held) = daemon.rules(RulesOf::Guard, patience).ok()?;
        let before = daemon.status(patience).ok()?.guard;
        let asked = GuardEdit::Replace(text.to_owned());
        edited(
            (&asked, &held),
            &before,
            daemon,
            (self.settings, self.messages),
        )
    }
}

/// Every key that rules have, in a file to begin with. Asks no daemon.
pub(super) fn reference() -> Result<Exit, Failure> {
    print_rules(&read::print_reference())?;
    Ok(Exit::Done)
}
