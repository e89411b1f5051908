//! Files of rules of either kind: shown, checked, exported and imported.

use super::{confirm, connect, now};
use crate::args::{CheckRules, ExportRules, ImportRules, RulesFormat};
use crate::connect::{Daemon, Doing, Patience, RulesOf};
use crate::converter::ByProgram;
use crate::exit::{Exit, Failure, unreadable};
use crate::output::export::partial::{IfThere, Partial};
use crate::output::guard::{self, Turn};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{print_lines, rules};
use crate::rules_files::{self, Format, LARGEST, Language, NoRules};
use crate::settings::Settings;
use gpukill_proto::guard::edit::Warning;
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::status::{Right, Status};
use std::fmt::Display;
use std::io::Read as _;
use std::path::Path;

/// As a new file of any program: the umask has the last word.
const MODE: u32 = 0o666;

/// What the rules of a file come to on the box of the daemon.
pub(super) trait OnThisBox {
    /// What of them means nothing on this box, such as an unknown user.
    fn warnings(&self, text: &str, daemon: &Daemon, patience: Patience) -> Vec<Warning>;

    /// Who would be affected if they were put in the place of those in force; `None` where
    /// that cannot be found out, or nobody is ever affected by such rules alone.
    fn affected(&self, text: &str, daemon: &Daemon, patience: Patience) -> Option<Turn>;
}

/// What a text of rules that is right comes to.
pub(super) struct Checked {
    /// In words.
    pub(super) comes_to: String,
    /// What of it is hardly meant.
    pub(super) odd: Vec<Warning>,
}

/// The rules as they are written, and a word where they are not in force so.
pub(super) fn config(
    of: RulesOf,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let patience = || Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience(), messages)?;
    let (file, revision, text) = daemon.rules(of, patience())?;
    warn_of_none(of, &file, revision.as_ref(), messages);
    rules::print_rules(&text)?;
    let status = daemon.status(patience())?;
    let (in_force, see) = match of {
        RulesOf::Guard => (status.guard.revision, "gpukillctl guard status"),
        RulesOf::Rogues => (status.rogue.revision, "gpukillctl status"),
    };
    if in_force != revision {
        messages.warn(&format!("this is not in force as it is: see {see}"));
    }
    Ok(Exit::Done)
}

/// What holds where nothing is written.
fn warn_of_none(of: RulesOf, file: &str, revision: Option<&RulesRevision>, messages: Messages) {
    let holds = match of {
        RulesOf::Guard => "nobody is limited",
        RulesOf::Rogues => "the built-in rules hold: gpukillctl rogue reference",
    };
    if revision.is_none() {
        messages.warn(&format!("there is no {file}: {holds}"));
    }
}

/// Every mistake in a file, and what of it is hardly meant, as `look_at` says of what the
/// file comes to in TOML.
pub(super) fn check<M: Display>(
    (of, language): (RulesOf, &Language<M>),
    wanted: &CheckRules,
    settings: &Settings,
    messages: Messages,
    look_at: impl Fn(&str) -> Checked,
) -> Result<Exit, Failure> {
    let (name, text, format) = match &wanted.file {
        Some(file) => {
            let text = text_of(file)?;
            let format = format_of(file, wanted.format, &text);
            (file.display().to_string(), text, format)
        }
        None => {
            let patience = || Patience::lasting(settings.timeout);
            let daemon = connect(settings, patience(), messages)?;
            let (file, _, text) = daemon.rules(of, patience())?;
            let status = daemon.status(patience())?;
            // Without the right to edit, a caller gets the rules in force and not the file's.
            if !status.caller.rights.contains(&Right::EditRules)
                && let Some(exit) = differs_from_file(of, &status, (settings, messages))?
            {
                return Ok(exit);
            }
            (file, text, Format::Toml)
        }
    };
    let look = Look::of_stdout(settings);
    match rules_files::import(language, &text, format, &ByProgram) {
        Ok(imported) => {
            tell(&imported.notices, messages);
            let Checked { comes_to, mut odd } = look_at(&imported.text);
            if imported.text != text {
                odd = odd.into_iter().map(without_its_line).collect();
            }
            odd.sort();
            print_lines(&rules::checked(&name, &comes_to, &odd, &look), &look)?;
            Ok(Exit::Done)
        }
        Err(NoRules::Mistakes(mistakes)) => {
            print_lines(&rules::mistakes(&name, &mistakes, &look), &look)?;
            Ok(Exit::BadUsage)
        }
        Err(why @ (NoRules::Unreadable { .. } | NoRules::Unable(_))) => {
            Err(Failure::Usage(format!("{name} {why}")))
        }
    }
}

/// Says that the file has other rules than those in force. Where its mistakes are the reason,
/// nothing else has to be checked.
fn differs_from_file(
    of: RulesOf,
    status: &Status,
    (settings, messages): (&Settings, Messages),
) -> Result<Option<Exit>, Failure> {
    let (file, mistakes, is_changed) = match of {
        RulesOf::Guard => {
            let guard = &status.guard;
            (&guard.file, &guard.mistakes, guard.is_file_changed)
        }
        RulesOf::Rogues => (&status.rogue.file, &status.rogue.mistakes, None),
    };
    if !mistakes.is_empty() {
        let look = Look::of_stdout(settings);
        print_lines(&rules::mistakes(file, mistakes, &look), &look)?;
        messages.warn("what they are, an admin can see; the rules of before are in force");
        return Ok(Some(Exit::BadUsage));
    }
    if is_changed == Some(true) {
        messages.warn(&format!(
            "{file} has changed since it was read: the rules in force are checked, not the file"
        ));
    }
    Ok(None)
}

/// The rules that a file says, as TOML. What of it has no meaning here is told.
///
/// # Errors
/// When it cannot be read, or has mistakes.
pub(super) fn read<M: Display>(
    language: &Language<M>,
    file: &Path,
    typed: Option<RulesFormat>,
    messages: Messages,
) -> Result<String, Failure> {
    let text = text_of(file)?;
    let format = format_of(file, typed, &text);
    let imported = rules_files::import(language, &text, format, &ByProgram).map_err(|why| {
        let space = match why {
            NoRules::Unreadable { .. } | NoRules::Unable(_) => " ",
            NoRules::Mistakes(_) => ": ",
        };
        Failure::Usage(format!("{}{space}{why}", file.display()))
    })?;
    tell(&imported.notices, messages);
    Ok(imported.text)
}

/// As it was typed, else as the file's name says, else as its text does.
fn format_of(file: &Path, typed: Option<RulesFormat>, text: &str) -> Format {
    let typed = typed.map(Format::from);
    let named = || Format::of(file);
    typed
        .or_else(named)
        .unwrap_or_else(|| Format::of_text(text))
}

impl From<RulesFormat> for Format {
    fn from(typed: RulesFormat) -> Self {
        match typed {
            RulesFormat::Toml => Self::Toml,
            RulesFormat::Json => Self::Json,
            RulesFormat::Yaml => Self::Yaml,
        }
    }
}

fn tell(notices: &[String], messages: Messages) {
    for notice in notices {
        messages.warn(notice);
    }
}

/// The text of a file of rules, whatever its form.
fn text_of(file: &Path) -> Result<String, Failure> {
    let about =
        |error: &dyn Display| Failure::Usage(format!("cannot read {}: {error}", file.display()));
    let mut bytes = Vec::new();
    let most = LARGEST as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| about(&unreadable(&error)))?;
    if bytes.len() as u64 == most {
        return Err(about(&"it is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| about(&"it is no text"))
}

/// Writes the rules as they are written, in one of the forms.
pub(super) fn export<M: Display>(
    of: RulesOf,
    language: &Language<M>,
    wanted: &ExportRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let goal = wanted.file.as_ref().filter(|file| file.as_os_str() != "-");
    let goal = goal.map(|file| Partial::create(file, IfThere::with(wanted.force), MODE));
    let goal = goal.transpose()?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let (file, revision, text) = daemon.rules(of, Patience::lasting(settings.timeout))?;
    warn_of_none(of, &file, revision.as_ref(), messages);
    let named = || wanted.file.as_deref().and_then(Format::of);
    let format = wanted.format.map(Format::from).or_else(named);
    let format = format.unwrap_or(Format::Toml);
    let text = rules_files::export(language, &text, format, &ByProgram);
    let text = text.map_err(|why| Failure::Usage(format!("{file}: {why}")))?;
    match goal {
        Some(mut goal) => {
            goal.write(text.as_bytes())?;
            goal.finish()?;
        }
        None => rules::print_rules(&text)?,
    }
    Ok(Exit::Done)
}

/// Puts these rules in the place of all, after it was shown what changes, who is affected,
/// and what of them means nothing on this box.
pub(super) fn import(
    of: RulesOf,
    text: &str,
    wanted: &ImportRules,
    settings: &Settings,
    messages: Messages,
    on_this_box: &impl OnThisBox,
) -> Result<Exit, Failure> {
    let patience = || Patience::lasting(settings.timeout);
    let look = Look::of_stdout(settings);
    let tell_of_this_box = |daemon: &Daemon| {
        for warning in on_this_box.warnings(text, daemon, patience()) {
            messages.warn(&without_its_line(warning).to_string());
        }
    };
    let daemon = connect(settings, patience(), messages)?;
    daemon.offer_rules(text, patience())?;
    let planned = daemon.edit_rules(of.to_offered(), None, Doing::Saying, patience())?;
    let is_nothing = rules::is_nothing(&planned);
    // Before anything changes: afterwards nobody could tell what was so before.
    let turn = match is_nothing {
        true => None,
        false => on_this_box.affected(text, &daemon, patience()),
    };
    let shown = |report: &EditReport, doing| {
        print_lines(
            &guard::edited(report, doing, turn.as_ref(), now(), &look),
            &look,
        )
    };
    let shows = wanted.edit.dry_run || is_nothing || !wanted.edit.unasked.yes;
    if shows {
        shown(&planned, Doing::Saying)?;
        tell(&planned.warnings, messages);
        tell_of_this_box(&daemon);
    }
    if wanted.edit.dry_run || is_nothing {
        return Ok(Exit::Done);
    }
    let daemon = if wanted.edit.unasked.yes {
        daemon
    } else {
        // The daemon hangs up on who is silent, and a person may take their time.
        drop(daemon);
        confirm::must_agree(
            "put these rules in the place of all?",
            "nothing was changed",
        )?;
        let daemon = connect(settings, patience(), messages)?;
        daemon.offer_rules(text, patience())?;
        daemon
    };
    let (change, expected) = (of.to_offered(), planned.before.as_ref());
    let report = daemon.edit_rules(change, expected, Doing::Doing, patience())?;
    if shows {
        print_lines(&[rules::in_force(&report)], &look)?;
        // What only the edit itself could tell.
        let mut new = report.warnings;
        new.retain(|warning| !planned.warnings.contains(warning));
        tell(&new, messages);
    } else {
        shown(&report, Doing::Doing)?;
        tell(&report.warnings, messages);
        tell_of_this_box(&daemon);
    }
    Ok(Exit::Done)
}

/// A warning of a text whose lines nobody saw.
pub(super) fn without_its_line(warning: Warning) -> Warning {
    Warning {
        place: None,
        ..warning
    }
}
