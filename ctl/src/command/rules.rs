//! Shows, checks, exports and imports rule files of both kinds.

use super::{confirm, now, open_connection};
use crate::args::{CheckRules, ExportRules, ImportRules, RulesFormat};
use crate::connect::{Daemon, Mode, RequestTimeout, RulesKind, call};
use crate::convert_program::ProgramYaml;
use crate::exit::{Error, Exit, read_error_reason};
use crate::output::audit::export::atomic_file::{AtomicFile, IfExists};
use crate::output::guard::rules::{Difference, EditView};
use crate::output::guard::{self, EditEffect};
use crate::output::style::OutputStyle;
use crate::output::text::Line;
use crate::output::{guard::rules, print_lines};
use crate::rules_files::{self, RulesCodec, RulesFileError};
use crate::settings::Settings;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::Lint;
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::service::MAX_RULES_BYTES;
use gpukill_proto::status::{DaemonStatus, Right};
use std::fmt::Display;
use std::io::Read as _;
use std::path::Path;

/// As for a new file of any program; the umask narrows it.
const FILE_MODE: u32 = 0o666;

/// Checks of rules against the host of the daemon.
pub(super) trait HostChecks {
    /// Warnings about rules that mean nothing on this host, such as an unknown user.
    fn warnings(&self, text: &str, daemon: &Daemon, timeout: RequestTimeout) -> Vec<Lint>;

    /// The consequences of replacing the rules in force by these, as planned.
    fn consequences(
        &self,
        text: &str,
        planned: &EditReport,
        daemon: &Daemon,
        timeout: RequestTimeout,
    ) -> EditConsequences;
}

#[derive(Default)]
pub(super) struct EditConsequences {
    /// What holds after the edit; empty where it is not known, or where `effect` says it.
    pub(super) statement: String,
    /// The affected jobs. `None` when they cannot be determined, or when such rules alone affect
    /// no process.
    pub(super) effect: Option<EditEffect>,
}

/// The result of checking valid rules.
pub(super) struct CheckedRules {
    /// A summary in words.
    pub(super) summary: String,
    /// Lints for valid but probably unintended rules.
    pub(super) lints: Vec<Lint>,
}

/// Prints the rules as written, and warns when they are not in force as written.
pub(super) fn print_config(kind: RulesKind, settings: &Settings) -> Result<Exit, Error> {
    let timeout = || settings.request_timeout();
    let daemon = open_connection(settings)?;
    let (file, revision, text) = daemon.rules(kind, timeout())?;
    warn_no_file(kind, &file, revision.as_ref(), settings);
    rules::print_rules(&text)?;
    let status = call!(daemon, timeout(), Status {})?;
    let (in_force, see) = match kind {
        RulesKind::Guard => (status.guard.revision, "gpukillctl guard status"),
        RulesKind::Rogues => (status.rogue.revision, "gpukillctl status"),
    };
    if in_force != revision {
        let messages = settings.messages();
        messages.warn(&format!("other rules than these are in force: see {see}"));
    }
    Ok(Exit::Done)
}

/// Warns that there is no rules file, and states what applies then.
fn warn_no_file(
    kind: RulesKind,
    file: &str,
    revision: Option<&RulesRevision>,
    settings: &Settings,
) {
    let holds = match kind {
        RulesKind::Guard => "nobody is limited",
        RulesKind::Rogues => "the built-in rules apply: gpukillctl rogue reference",
    };
    if revision.is_none() {
        settings
            .messages()
            .warn(&format!("there is no {file}: {holds}"));
    }
}

/// Reports every mistake in a file. For a valid file, `examine` summarises and lints its TOML
/// form.
pub(super) fn check<M: Display>(
    (kind, language): (RulesKind, &RulesCodec<M>),
    wanted: &CheckRules,
    settings: &Settings,
    examine: impl Fn(&str) -> CheckedRules,
) -> Result<Exit, Error> {
    let (name, text, format) = match &wanted.file {
        Some(file) => {
            let text = read_text(file)?;
            let format = file_format(file, wanted.format, &text);
            (file.display().to_string(), text, format)
        }
        None => {
            let timeout = || settings.request_timeout();
            let daemon = open_connection(settings)?;
            let (file, _, text) = daemon.rules(kind, timeout())?;
            let status = call!(daemon, timeout(), Status {})?;
            // Without the right to edit, a caller gets the rules in force and not those of the
            // file.
            if !status.caller.rights.contains(&Right::EditRules)
                && let Some(exit) = warn_if_file_differs(kind, &status, settings)?
            {
                return Ok(exit);
            }
            (file, text, RulesFormat::Toml)
        }
    };
    let style = OutputStyle::for_stdout(settings);
    match rules_files::import(language, &text, format, &ProgramYaml) {
        Ok(imported) => {
            print_notices(&imported.notices, settings);
            let CheckedRules { summary, mut lints } = examine(&imported.text);
            if imported.text != text {
                lints = lints.into_iter().map(without_line).collect();
            }
            lints.sort_indirect();
            print_lines(
                &rules::checked_lines(&name, &summary, &lints, &style),
                &style,
            )?;
            Ok(Exit::Done)
        }
        Err(RulesFileError::Mistakes(mistakes)) => {
            print_lines(&rules::mistake_lines(&name, &mistakes, &style), &style)?;
            Ok(Exit::BadUsage)
        }
        Err(
            why @ (RulesFileError::Unreadable { .. } | RulesFileError::ConverterUnavailable(_)),
        ) => Err(Error::Usage(format!("{name} {why}"))),
    }
}

/// Warns when the file differs from the rules in force. When the file has mistakes, the check
/// ends with them.
fn warn_if_file_differs(
    kind: RulesKind,
    status: &DaemonStatus,
    settings: &Settings,
) -> Result<Option<Exit>, Error> {
    let (file, mistakes, is_changed) = match kind {
        RulesKind::Guard => {
            let guard = &status.guard;
            (&guard.file, &guard.mistakes, guard.is_file_changed)
        }
        RulesKind::Rogues => (&status.rogue.file, &status.rogue.mistakes, None),
    };
    let messages = settings.messages();
    if !mistakes.is_empty() {
        let style = OutputStyle::for_stdout(settings);
        print_lines(&rules::mistake_lines(file, mistakes, &style), &style)?;
        messages.warn("an admin can see the mistakes; the previous rules are in force");
        return Ok(Some(Exit::BadUsage));
    }
    if is_changed == Some(true) {
        messages.warn(&format!(
            "{file} has changed since it was read: the rules in force are checked, not the file"
        ));
    }
    Ok(None)
}

/// Reads the rules of a file as TOML. Rules without a meaning here are reported.
pub(super) fn read_rules<M: Display>(
    language: &RulesCodec<M>,
    file: &Path,
    typed: Option<RulesFormat>,
    settings: &Settings,
) -> Result<String, Error> {
    let text = read_text(file)?;
    let format = file_format(file, typed, &text);
    let imported = rules_files::import(language, &text, format, &ProgramYaml).map_err(|why| {
        let space = match why {
            RulesFileError::Unreadable { .. } | RulesFileError::ConverterUnavailable(_) => " ",
            RulesFileError::Mistakes(_) => ": ",
        };
        Error::Usage(format!("{}{space}{why}", file.display()))
    })?;
    print_notices(&imported.notices, settings);
    Ok(imported.text)
}

/// The format that was typed, else that of the file's extension, else that of its text.
fn file_format(file: &Path, typed: Option<RulesFormat>, text: &str) -> RulesFormat {
    typed
        .or_else(|| RulesFormat::from_path(file))
        .unwrap_or_else(|| RulesFormat::from_text(text))
}

fn print_notices(notices: &[String], settings: &Settings) {
    for notice in notices {
        settings.messages().warn(notice);
    }
}

/// The text of a rules file, in any format.
fn read_text(file: &Path) -> Result<String, Error> {
    let read_error =
        |error: &dyn Display| Error::Usage(format!("cannot read {}: {error}", file.display()));
    let mut bytes = Vec::new();
    let max_bytes = MAX_RULES_BYTES as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(max_bytes)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(max_bytes).read_to_end(&mut bytes))
    };
    read.map_err(|error| read_error(&read_error_reason(&error)))?;
    if bytes.len() as u64 == max_bytes {
        return Err(read_error(&"it is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| read_error(&"it is not UTF-8 text"))
}

/// Writes the rules, as written, in one of the formats.
pub(super) fn export<M: Display>(
    kind: RulesKind,
    language: &RulesCodec<M>,
    wanted: &ExportRules,
    settings: &Settings,
) -> Result<Exit, Error> {
    let goal = wanted.file.as_ref().filter(|file| file.as_os_str() != "-");
    let goal =
        goal.map(|file| AtomicFile::create(file, IfExists::from_force(wanted.force), FILE_MODE));
    let goal = goal.transpose()?;
    let daemon = open_connection(settings)?;
    let (file, revision, text) = daemon.rules(kind, settings.request_timeout())?;
    warn_no_file(kind, &file, revision.as_ref(), settings);
    let named = || wanted.file.as_deref().and_then(RulesFormat::from_path);
    let format = wanted.format.or_else(named).unwrap_or(RulesFormat::Toml);
    let text = rules_files::export(language, &text, format, &ProgramYaml);
    let text = text.map_err(|why| Error::Usage(format!("{file}: {why}")))?;
    match goal {
        Some(mut goal) => {
            goal.write(text.as_bytes())?;
            goal.finish()?;
        }
        None => rules::print_rules(&text)?,
    }
    Ok(Exit::Done)
}

/// Replaces all rules by these, after showing what changes, which jobs are affected, and which
/// rules mean nothing on this host.
pub(super) fn import(
    kind: RulesKind,
    text: &str,
    wanted: &ImportRules,
    settings: &Settings,
    host_checks: &impl HostChecks,
) -> Result<Exit, Error> {
    let timeout = || settings.request_timeout();
    let style = OutputStyle::for_stdout(settings);
    let daemon = open_connection(settings)?;
    let host_warnings = new_host_warnings(kind, text, &daemon, settings, host_checks);
    let warn_about_host = || print_notices(&host_warnings, settings);
    daemon.offer_rules(text, timeout())?;
    let planned = daemon.edit_rules(kind.replace_by_offered(), None, Mode::DryRun, timeout())?;
    let is_nothing = rules::is_no_change(&planned);
    // Determined before the change, because the previous state is not available afterwards.
    let EditConsequences { statement, effect } = match is_nothing {
        true => EditConsequences::default(),
        false => host_checks.consequences(text, &planned, &daemon, timeout()),
    };
    let shown = |report: &EditReport, doing, difference| {
        let view = EditView {
            doing,
            difference,
            statement: &statement,
        };
        guard::edit_lines(report, view, effect.as_ref(), now(), &style)
    };
    let is_question = !wanted.edit.dry_run && !is_nothing && !wanted.edit.yes;
    let shows = wanted.edit.dry_run || is_nothing || is_question;
    if shows {
        // Nobody can agree to changes unseen: another person's limit may go.
        let lines = shown(&planned, Mode::DryRun, Difference::Shown);
        match is_question {
            true => confirm::print_subject(&lines, &style)?,
            false => print_lines(&lines, &style)?,
        }
        print_notices(&planned.warnings, settings);
        warn_about_host();
    }
    if wanted.edit.dry_run || is_nothing {
        return Ok(Exit::Done);
    }
    let daemon = if wanted.edit.yes {
        daemon
    } else {
        // The daemon hangs up on an idle connection, and a person may take time to answer.
        drop(daemon);
        confirm::require_agreement(
            "put these rules in the place of all?",
            "nothing was changed",
        )?;
        let daemon = open_connection(settings)?;
        daemon.offer_rules(text, timeout())?;
        daemon
    };
    let (change, expected) = (kind.replace_by_offered(), planned.before.as_ref());
    let report = daemon.edit_rules(change, expected, Mode::Apply, timeout())?;
    if shows {
        print_lines(&[Line::plain("the rules are replaced")], &style)?;
        // Warnings that only the edit itself can find.
        let mut new = report.warnings;
        new.retain(|warning| !planned.warnings.contains(warning));
        print_notices(&new, settings);
    } else {
        let difference = Difference::from_options(&wanted.edit);
        print_lines(&shown(&report, Mode::Apply, difference), &style)?;
        print_notices(&report.warnings, settings);
        warn_about_host();
    }
    Ok(Exit::Done)
}

/// Prints one edit with its effect, and the warnings about it.
pub(super) fn print_edit(
    report: &EditReport,
    (view, effect): (EditView<'_>, Option<&EditEffect>),
    settings: &Settings,
    host_warnings: impl FnOnce() -> Vec<Lint>,
) -> Result<Exit, Error> {
    let style = OutputStyle::for_stdout(settings);
    let lines = guard::edit_lines(report, view, effect, now(), &style);
    print_lines(&lines, &style)?;
    print_notices(&report.warnings, settings);
    for warning in host_warnings() {
        settings.messages().warn(&without_line(warning).to_string());
    }
    Ok(Exit::Done)
}

/// Warnings about names unknown on this host that the rules in force do not have already.
fn new_host_warnings(
    of: RulesKind,
    text: &str,
    daemon: &Daemon,
    settings: &Settings,
    host_checks: &impl HostChecks,
) -> Vec<String> {
    let timeout = || settings.request_timeout();
    let warnings = |text: &str| -> Vec<String> {
        let warnings = host_checks.warnings(text, daemon, timeout()).into_iter();
        warnings.map(|it| without_line(it).to_string()).collect()
    };
    let mut new = warnings(text);
    if !new.is_empty()
        && let Ok((_, _, held)) = daemon.rules(of, timeout())
    {
        let known = warnings(&held);
        new.retain(|warning| !known.contains(warning));
    }
    new
}

/// Removes the line number from a warning about a text that the user has not seen.
fn without_line(warning: Lint) -> Lint {
    Lint {
        position: None,
        ..warning
    }
}
