//! Messages on stderr: errors, hints, warnings and debug steps. A message that cannot be
//! written is dropped.

use super::print;
use super::spinner::Spinner;
use super::style::{Symbols, is_stderr_terminal, stderr_width};
use super::text::{escaped, wrap};
use crate::exit::{DaemonKind, Error, Exit};
use crate::settings::{LogLevel, Settings};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::io::{self, Write as _};

/// Prints the messages that the log level includes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    level: LogLevel,
    /// Whether they are joined on a terminal by what a long wait is for.
    shows_wait_lines: bool,
}

impl Settings {
    /// The messages of the log level.
    pub(crate) fn messages(&self) -> Messages {
        Messages {
            level: self.log_level,
            shows_wait_lines: Spinner::is_enabled(self),
        }
    }
}

impl Messages {
    /// Whether long waits may be shown.
    pub(crate) const fn shows_wait_lines(self) -> bool {
        self.shows_wait_lines
    }

    /// The error that ended the run, and a hint.
    pub(crate) fn error(self, failure: &Error, daemon_kind: DaemonKind) {
        if matches!(failure, Error::ReaderGone) {
            // The reader of the output left on purpose.
            return;
        }
        print_message("gpukillctl: ", &failure.to_string());
        if let Some(hint) = failure.hint(daemon_kind) {
            self.hint(&hint);
        }
    }

    /// The next step for the person.
    pub(crate) fn hint(self, what: &str) {
        if self.level >= LogLevel::Warn {
            print_message("hint: ", what);
        }
    }

    /// A warning, which stops nothing.
    pub(crate) fn warn(self, what: &str) {
        if self.level >= LogLevel::Warn {
            print_message("warning: ", what);
        }
    }

    /// A notice for a person at a terminal.
    pub(crate) fn notice(self, what: &str) {
        if self.level >= LogLevel::Info && is_stderr_terminal() {
            print_message("gpukillctl: ", what);
        }
    }

    /// A debug step; the text is built only when it is printed.
    pub(crate) fn debug(self, what: impl FnOnce() -> String) {
        if self.level >= LogLevel::Debug {
            print_message("gpukillctl: debug: ", &what());
        }
    }
}

/// The subject of a question, printed at every level, because the person who answers must have
/// seen it.
pub(crate) fn question_subject(line: &str) {
    print_unwrapped(line);
}

/// An error of a program that the client starts; the client names the program.
pub(crate) fn program_error(what: &str) {
    print_unwrapped(what);
}

/// Asks on stderr. The answer is typed after the question, so the line does not end.
pub(crate) fn ask(question: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()
}

/// Prints a message, wrapped at the width of the terminal.
fn print_message(prefix: &str, text: &str) {
    write_message(&message_text(prefix, text, stderr_width()));
}

/// Prints a text that fits the terminal already, or has another reader.
fn print_unwrapped(text: &str) {
    write_message(&message_text("", text, None));
}

fn write_message(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The lines of a message, broken at blanks. The rest of a broken line is indented.
fn message_text(prefix: &str, text: &str, max_width: Option<usize>) -> String {
    let mut whole = String::new();
    let text = text.strip_suffix('\n').unwrap_or(text);
    for (at, line) in text.split('\n').enumerate() {
        let prefix = if at == 0 { prefix } else { "" };
        let line = format!("{prefix}{}", escaped(line, Symbols::Unicode));
        let words = line.trim_start_matches(' ');
        let (indent, words) = (line.len() - words.len(), keep_commands_whole(words));
        let lines = wrap(&words, indent, indent + 2, max_width);
        whole.push_str(&line[..indent]);
        whole.push_str(&lines.join("\n").replace(HELD_BLANK, " "));
        whole.push('\n');
    }
    whole
}

/// Stands for a blank that no line is broken at.
const HELD_BLANK: char = '\u{a0}';

/// Holds the words of commands together, so that they can be copied. A command follows a colon
/// and ends with the text or before punctuation: `see why: systemctl status gpukilld; or …`
fn keep_commands_whole(text: &str) -> String {
    const PROGRAMS: [&str; 4] = ["gpukillctl", "gpukilld", "systemctl", "usermod"];
    let mut kept = String::with_capacity(text.len());
    let (mut is_command, mut follows_colon) = (false, false);
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        kept.push_str(word);
        let is_run = PROGRAMS.contains(&word)
            // A sentence about the daemon goes on with a verb.
            && (word != "gpukilld" || words.peek().is_some_and(|next| next.starts_with('-')));
        is_command |= follows_colon && is_run;
        is_command &= !word.ends_with([';', ',', ')']);
        follows_colon = word.ends_with(':');
        if words.peek().is_some() {
            kept.push(if is_command { HELD_BLANK } else { ' ' });
        }
    }
    kept
}

/// Maximum length of a wrong value to show; the reason follows it.
const MAX_SHOWN_VALUE: usize = 200;

/// Prints clap's message: help to stdout, mistakes to stderr.
pub(crate) fn print_usage(mut error: clap::Error) -> Exit {
    for kind in [
        ContextKind::InvalidValue,
        ContextKind::InvalidArg,
        ContextKind::InvalidSubcommand,
    ] {
        if let Some(ContextValue::String(typed)) = error.get(kind) {
            let shown = shorten(&escaped(typed, Symbols::Unicode));
            error.insert(kind, ContextValue::String(shown));
        }
    }
    let own_hint = own_hint(&error);
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match print(&text) {
            Ok(()) => Exit::Done,
            Err(failure) => {
                Settings::default()
                    .messages()
                    .error(&failure, DaemonKind::Manual);
                failure.exit_code()
            }
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            print_message("gpukillctl: ", "a command is missing");
            print_unwrapped(&text);
            Exit::BadUsage
        }
        _ => {
            let (mistake, suggestion) = split_usage_error(&text);
            print_message("gpukillctl: ", &mistake);
            let hint = own_hint.as_deref().or(suggestion);
            print_message("hint: ", hint.unwrap_or(HELP_HINT));
            Exit::BadUsage
        }
    }
}

/// When no name is similar to the typed one.
const HELP_HINT: &str = "gpukillctl --help, or --help after a command";

/// The hint for a mistake that clap has no similar name for, or a wrong one.
fn own_hint(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(_) | None => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            command_meant_by(context(ContextKind::InvalidSubcommand)?).map(str::to_owned)
        }
        // The PIDs of `kill`.
        ErrorKind::ValueValidation if context(ContextKind::InvalidArg)? == "[PID]..." => {
            let typed = context(ContextKind::InvalidValue)?;
            let is_name = typed.starts_with(|first: char| first.is_ascii_alphabetic())
                && typed
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            is_name
                .then(|| format!("by name: --filter {typed}; by command line: --command {typed}"))
        }
        ErrorKind::TooManyValues => Some(match context(ContextKind::InvalidArg)? {
            details if details.ends_with("--details") => "--no-details turns it off".to_owned(),
            _ => "this option takes no value".to_owned(),
        }),
        _ => None,
    }
}

/// The command that this name means, which is an option here or a command of other programs.
fn command_meant_by(typed: &str) -> Option<&'static str> {
    Some(match typed {
        "summary" => "gpukillctl audit --summary",
        "samples" => "gpukillctl audit --samples",
        "weekly" => "gpukillctl audit --weekly",
        "top" | "watch" => "gpukillctl list --watch",
        "ps" => "gpukillctl list --details",
        "mode" => {
            "gpukillctl guard status shows the mode; guard dry-run, soft, enforce and disable set it"
        }
        _ => return None,
    })
}

fn shorten(typed: &str) -> String {
    match typed.char_indices().nth(MAX_SHOWN_VALUE) {
        Some((end, _)) => format!("{}…", &typed[..end]),
        None => typed.to_owned(),
    }
}

/// The mistake in a message of clap, on one line, and the similar name that clap found, if any.
/// The usage, which follows, is in the help.
fn split_usage_error(text: &str) -> (String, Option<&str>) {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mistake = text.split("\n\n").next().unwrap_or(text);
    let lines: Vec<&str> = mistake.lines().map(str::trim).collect();
    let mut tips = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("tip: "));
    // Other tips tell how to type the same as a value, which is hardly ever meant.
    let suggestion = tips.find(|tip| tip.contains("exist"));
    (lines.join(" "), suggestion)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;
    use std::ffi::OsString;

    #[test]
    fn message_is_wrapped_at_the_terminals_width_only() {
        let text = "the first line is long\n  the second too\n";
        assert_eq!(
            message_text("warning: ", text, None),
            "warning: the first line is long\n  the second too\n"
        );
        assert_eq!(
            message_text("warning: ", text, Some(22)),
            "warning: the first\n  line is long\n  the second too\n"
        );
        assert_eq!(
            message_text("", text, Some(12)),
            "the first\n  line is\n  long\n  the second\n    too\n"
        );
        assert_eq!(message_text("", "", Some(12)), "\n");
        // Too narrow for any word.
        assert_eq!(message_text("", "a\x1bb c", Some(0)), "a\\x1bb\n  c\n");
    }

    #[test]
    fn command_in_a_message_stays_on_one_line() {
        let hint = "see why: systemctl status gpukilld; or run one for yourself: gpukilld --user";
        assert_eq!(
            message_text("hint: ", hint, Some(24)),
            "hint: see why:\n  systemctl status gpukilld;\n  or run one for\n  yourself:\n  \
             gpukilld --user\n"
        );
        let sentence = "gpukilld ended the connection";
        assert_eq!(
            message_text("gpukillctl: ", sentence, Some(24)),
            "gpukillctl: gpukilld\n  ended the connection\n"
        );
    }

    #[test]
    fn usage_error_is_one_line_and_a_hint() {
        for (line, mistake, suggestion) in [
            (
                "lst",
                "unrecognized subcommand 'lst'",
                "a similar subcommand exists: 'list'",
            ),
            (
                "guard usr set bob",
                "unrecognized subcommand 'usr'",
                "a similar subcommand exists: 'user'",
            ),
            (
                "list --detials",
                "unexpected argument '--detials' found",
                "a similar argument exists: '--details'",
            ),
            (
                "list --colr never",
                "unexpected argument '--colr' found",
                "a similar argument exists: '--color'",
            ),
            (
                "kill --pids 7",
                "unexpected argument '--pids' found",
                "a similar argument exists: '--pid'",
            ),
            (
                "status -o jsn",
                "invalid value 'jsn' for '--output <FORMAT>' [possible values: table, json]",
                "a similar value exists: 'json'",
            ),
            (
                "guard set",
                "the following required arguments were not provided: <KEY> <VALUE>",
                HELP_HINT,
            ),
            ("list -z", "unexpected argument '-z' found", HELP_HINT),
            (
                "audit summary",
                "unrecognized subcommand 'summary'",
                "gpukillctl audit --summary",
            ),
            (
                "top",
                "unrecognized subcommand 'top'",
                "gpukillctl list --watch",
            ),
            (
                "guard mode",
                "unrecognized subcommand 'mode'",
                "gpukillctl guard status shows the mode; guard dry-run, soft, enforce and disable \
                 set it",
            ),
            (
                "list --details=false",
                "unexpected value 'false' for '--details' found; no more were expected",
                "--no-details turns it off",
            ),
            (
                "kill --mine=no",
                "unexpected value 'no' for '--mine' found; no more were expected",
                "this option takes no value",
            ),
            (
                "kill python",
                "invalid value 'python' for '[PID]...': expected the number of a process, like \
                 4182: gpukillctl list --details shows them",
                "by name: --filter python; by command line: --command python",
            ),
        ] {
            let typed = ["gpukillctl"].into_iter().chain(line.split(' '));
            let error = parse(typed.map(OsString::from)).expect_err("it is wrong");
            let own_hint = own_hint(&error);
            let text = error.render().to_string();
            let (found, hint) = split_usage_error(&text);
            let hint = own_hint.as_deref().or(hint);
            let found = (found.as_str(), hint.unwrap_or(HELP_HINT));
            assert_eq!(found, (mistake, suggestion), "{line}");
        }
    }
}
