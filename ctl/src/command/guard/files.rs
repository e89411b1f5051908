//! Files of rules: checked, exported and imported.

use super::{confirm, connect};
use crate::args::{CheckRules, ExportRules, ImportRules, RulesFormat};
use crate::connect::{Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::guard_files::{self, Format, NoRules};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_policy::guard::check::warnings;
use gpukill_policy::guard::read;
use std::io::Read as _;
use std::path::Path;

/// Every mistake in a file, and what of it can never hold. Asks no daemon.
pub(super) fn check(
    wanted: &CheckRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let text = text_of(&wanted.file)?;
    let look = Look::of_stdout(settings);
    let name = wanted.file.display().to_string();
    let understood = match guard_files::import(&text, Format::of(&wanted.file)) {
        Ok(imported) => {
            tell(&imported.notices, messages);
            read::read(&imported.text)
        }
        Err(NoRules::Mistakes(mistakes)) => Err(mistakes),
        Err(unreadable @ NoRules::Unreadable { .. }) => {
            return Err(Failure::Usage(format!("{name} {unreadable}")));
        }
    };
    match understood {
        Ok(rules) => {
            let odd = warnings(&rules);
            print_lines(&guard::checked(&name, &rules, &odd, &look), &look)?;
            Ok(Exit::Done)
        }
        Err(mistakes) => {
            print_lines(&guard::mistakes(&name, &mistakes, &look), &look)?;
            Ok(Exit::BadUsage)
        }
    }
}

/// The rules that a file says, as TOML. What of it has no meaning here is told.
///
/// # Errors
/// When it cannot be read, or has mistakes.
pub(super) fn read(file: &Path, messages: Messages) -> Result<String, Failure> {
    let text = text_of(file)?;
    let imported = guard_files::import(&text, Format::of(file)).map_err(|why| {
        let space = match why {
            NoRules::Unreadable { .. } => " ",
            NoRules::Mistakes(_) => ": ",
        };
        Failure::Usage(format!("{}{space}{why}", file.display()))
    })?;
    tell(&imported.notices, messages);
    Ok(imported.text)
}

fn tell(notices: &[String], messages: Messages) {
    for notice in notices {
        messages.warn(notice);
    }
}

/// The text of a file of rules, whatever its form.
fn text_of(file: &Path) -> Result<String, Failure> {
    let about = |error: &dyn std::fmt::Display| {
        Failure::Usage(format!("cannot read {}: {error}", file.display()))
    };
    let mut bytes = Vec::new();
    let most = read::LARGEST as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| about(&error))?;
    if bytes.len() as u64 == most {
        return Err(about(&"it is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| about(&"it is no text"))
}

/// Writes the rules as they are written, in one of the forms.
pub(super) async fn export(
    wanted: &ExportRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages).await?;
    let (file, revision, text) = daemon.rules(Patience::lasting(settings.timeout)).await?;
    if revision.is_none() {
        messages.warn(&format!("there is no {file}: nobody is limited"));
    }
    let format = match wanted.format {
        Some(RulesFormat::Toml) => Format::Toml,
        Some(RulesFormat::Json) => Format::Json,
        Some(RulesFormat::Yaml) => Format::Yaml,
        None => wanted.file.as_deref().map_or(Format::Toml, Format::of),
    };
    let text = guard_files::export(&text, format);
    let text = text.map_err(|why| Failure::Usage(format!("{file}: {why}")))?;
    match &wanted.file {
        Some(file) => {
            std::fs::write(file, text).map_err(|error| {
                Failure::Usage(format!("cannot write {}: {error}", file.display()))
            })?;
        }
        None => guard::print_rules(&text)?,
    }
    Ok(Exit::Done)
}

/// Puts the rules of a file in the place of all, after it was shown what changes.
pub(super) async fn import(
    wanted: &ImportRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let text = read(&wanted.file, messages)?;
    let patience = || Patience::lasting(settings.timeout);
    let look = Look::of_stdout(settings);
    let daemon = connect(settings, patience(), messages).await?;
    daemon.offer_rules(&text, patience()).await?;
    let planned = daemon
        .edit_rules(None, None, Doing::Saying, patience())
        .await?;
    let is_nothing = planned.before.as_ref() == Some(&planned.after);
    let shows = wanted.edit.dry_run || is_nothing || !wanted.yes;
    if shows {
        print_lines(&guard::edited(&planned, Doing::Saying, &look), &look)?;
        for warning in &planned.warnings {
            messages.warn(warning);
        }
    }
    if wanted.edit.dry_run || is_nothing {
        return Ok(Exit::Done);
    }
    let daemon = if wanted.yes {
        daemon
    } else {
        // The daemon hangs up on who is silent, and a person may take their time.
        drop(daemon);
        confirm::must_agree(
            "put these rules in the place of all?",
            "nothing was changed",
        )?;
        let daemon = connect(settings, patience(), messages).await?;
        daemon.offer_rules(&text, patience()).await?;
        daemon
    };
    let report = daemon
        .edit_rules(None, planned.before.as_ref(), Doing::Doing, patience())
        .await?;
    if !shows {
        print_lines(&guard::edited(&report, Doing::Doing, &look), &look)?;
    }
    messages.warn(&format!("rules {} are in force", report.after.0));
    Ok(Exit::Done)
}
