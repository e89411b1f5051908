//! Messages on stderr: errors, hints, warnings and debug steps. A message that cannot be
//! written is dropped.

use super::print;
use super::style::{Symbols, is_stderr_terminal};
use super::text::escaped;
use crate::exit::{DaemonKind, Error, Exit};
use crate::settings::LogLevel;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::io::{self, Write as _};

/// Prints the messages that the log level includes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    level: LogLevel,
    daemon_kind: DaemonKind,
}

impl Default for Messages {
    fn default() -> Self {
        Self::new(LogLevel::Info, DaemonKind::Manual)
    }
}

impl Messages {
    /// Messages of this level, for a daemon of this kind.
    pub(crate) fn new(level: LogLevel, runs: DaemonKind) -> Self {
        Self {
            level,
            daemon_kind: runs,
        }
    }

    /// The error that ended the run, and a hint.
    pub(crate) fn error(self, failure: &Error) {
        if matches!(failure, Error::ReaderGone) {
            // The reader of the output left on purpose.
            return;
        }
        print_message("gpukillctl: ", &failure.to_string());
        if let Some(hint) = failure.hint(self.daemon_kind) {
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
            print_message("gpukillctl: ", what);
        }
    }

    /// A notice for a person at a terminal.
    pub(crate) fn notice(self, what: &str) {
        if self.level >= LogLevel::Info && is_stderr_terminal() {
            print_message("gpukillctl: ", what);
        }
    }

    /// The subject of a question, printed at every level, because the person who answers must
    /// have seen it.
    pub(crate) fn question_subject(self, line: &str) {
        print_message("", line);
    }

    /// A debug step; the text is built only when it is printed.
    pub(crate) fn debug(self, what: impl FnOnce() -> String) {
        if self.level >= LogLevel::Debug {
            print_message("gpukillctl: debug: ", &what());
        }
    }
}

/// An error of a program that the client starts; the client names the program.
pub(crate) fn program_error(what: &str) {
    print_message("", what);
}

/// Asks on stderr. The answer is typed after the question, so the line does not end.
pub(crate) fn ask(question: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()
}

fn print_message(prefix: &str, text: &str) {
    let mut whole = String::from(prefix);
    for (at, line) in text.lines().enumerate() {
        if at > 0 {
            whole.push('\n');
        }
        whole.push_str(&escaped(line, Symbols::Unicode));
    }
    whole.push('\n');
    let _ = io::stderr().lock().write_all(whole.as_bytes());
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
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match print(&text) {
            Ok(()) => Exit::Done,
            Err(failure) => {
                Messages::default().error(&failure);
                failure.exit_code()
            }
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            print_message("gpukillctl: ", "a command is missing");
            print_message("", &text);
            Exit::BadUsage
        }
        _ => {
            let (mistake, suggestion) = split_usage_error(&text);
            print_message("gpukillctl: ", &mistake);
            print_message("hint: ", suggestion.unwrap_or(HELP_HINT));
            Exit::BadUsage
        }
    }
}

/// When no name is similar to the typed one.
const HELP_HINT: &str = "gpukillctl --help, or --help after a command";

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
        ] {
            let typed = ["gpukillctl"].into_iter().chain(line.split(' '));
            let error = parse(typed.map(OsString::from)).expect_err("it is wrong");
            let text = error.render().to_string();
            let (found, hint) = split_usage_error(&text);
            let found = (found.as_str(), hint.unwrap_or(HELP_HINT));
            assert_eq!(found, (mistake, suggestion), "{line}");
        }
    }
}
