//! Files of rules: checked, exported and imported.

use super::{confirm, connect, here};
use crate::args::{CheckRules, ExportRules, ImportRules, RulesFormat};
use crate::connect::{Daemon, Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::guard_files::{self, Format, NoRules};
use crate::output::export::partial::{IfThere, Partial};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_policy::guard::check::warnings;
use gpukill_policy::guard::read;
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::edit::Warning;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// As a new file of any program: the umask has the last word.
const MODE: u32 = 0o666;

/// Every mistake in a file, and what of it can never hold. Asks no daemon.
pub(super) async fn check(
    wanted: &CheckRules,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let text = text_of(&wanted.file)?;
    let look = Look::of_stdout(settings);
    let name = wanted.file.display().to_string();
    let format = format_of(&wanted.file, wanted.format, &text);
    let mut has_lines = true;
    let understood = match guard_files::import(&text, format) {
        Ok(imported) => {
            tell(&imported.notices, messages);
            has_lines = imported.text == text;
            read::read(&imported.text)
        }
        Err(NoRules::Mistakes(mistakes)) => Err(mistakes),
        Err(unreadable @ NoRules::Unreadable { .. }) => {
            return Err(Failure::Usage(format!("{name} {unreadable}")));
        }
    };
    match understood {
        Ok(rules) => {
            let odd = warnings(&rules)
                .into_iter()
                .chain(about_this_box(&rules, settings, messages).await);
            let mut odd: Vec<Warning> = match has_lines {
                true => odd.collect(),
                false => odd.map(here::without_its_line).collect(),
            };
            odd.sort();
            print_lines(&guard::checked(&name, &rules, &odd, &look), &look)?;
            Ok(Exit::Done)
        }
        Err(mistakes) => {
            print_lines(&guard::mistakes(&name, &mistakes, &look), &look)?;
            Ok(Exit::BadUsage)
        }
    }
}

/// What means nothing here: where a daemon answers, also which GPUs this box has not got.
/// A file is checked without one too.
async fn about_this_box(rules: &Rules, settings: &Settings, messages: Messages) -> Vec<Warning> {
    /// A daemon that is there answers at once, and one that is not is not waited for.
    const PATIENCE: Duration = Duration::from_secs(1);
    let patience = Patience::lasting(settings.timeout.min(PATIENCE));
    match connect(settings, patience, messages).await {
        Ok(daemon) => here::about_all(rules, &daemon, patience).await,
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
    let text = text_of(file)?;
    let format = format_of(file, typed, &text);
    let imported = guard_files::import(&text, format).map_err(|why| {
        let space = match why {
            NoRules::Unreadable { .. } => " ",
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
    let goal = wanted.file.as_ref().filter(|file| file.as_os_str() != "-");
    let goal = goal.map(|file| Partial::create(file, IfThere::with(wanted.force), MODE));
    let goal = goal.transpose()?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages).await?;
    let (file, revision, text) = daemon.rules(Patience::lasting(settings.timeout)).await?;
    if revision.is_none() {
        messages.warn(&format!("there is no {file}: nobody is limited"));
    }
    let named = || wanted.file.as_deref().and_then(Format::of);
    let format = wanted.format.map(Format::from).or_else(named);
    let format = format.unwrap_or(Format::Toml);
    let text = guard_files::export(&text, format);
    let text = text.map_err(|why| Failure::Usage(format!("{file}: {why}")))?;
    match goal {
        Some(mut goal) => {
            goal.write(text.as_bytes())?;
            goal.finish()?;
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
    let text = read(&wanted.file, wanted.format, messages)?;
    let patience = || Patience::lasting(settings.timeout);
    let look = Look::of_stdout(settings);
    let daemon = connect(settings, patience(), messages).await?;
    daemon.offer_rules(&text, patience()).await?;
    let planned = daemon
        .edit_rules(None, None, Doing::Saying, patience())
        .await?;
    let is_nothing = guard::is_nothing(&planned);
    let shows = wanted.edit.dry_run || is_nothing || !wanted.yes;
    if shows {
        print_lines(
            &guard::edited(&planned, Doing::Saying, None, super::now(), &look),
            &look,
        )?;
        tell(&planned.warnings, messages);
        tell_of_this_box(&text, &daemon, patience(), messages).await;
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
    if shows {
        print_lines(&[guard::in_force(&report)], &look)?;
        // What only the edit itself could tell.
        let mut new = report.warnings;
        new.retain(|warning| !planned.warnings.contains(warning));
        tell(&new, messages);
    } else {
        print_lines(
            &guard::edited(&report, Doing::Doing, None, super::now(), &look),
            &look,
        )?;
        tell(&report.warnings, messages);
        tell_of_this_box(&text, &daemon, patience(), messages).await;
    }
    Ok(Exit::Done)
}

/// What of these rules means nothing here.
async fn tell_of_this_box(text: &str, daemon: &Daemon, patience: Patience, messages: Messages) {
    // The daemon has read them without a mistake.
    let Ok(rules) = read::read(text) else { return };
    for warning in here::about_all(&rules, daemon, patience).await {
        messages.warn(&here::without_its_line(warning).to_string());
    }
}

/// Every key that rules have, in a file to begin with. Asks no daemon.
pub(super) fn reference() -> Result<Exit, Failure> {
    guard::print_rules(&read::print_reference())?;
    Ok(Exit::Done)
}
