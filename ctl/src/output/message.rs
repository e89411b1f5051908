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

    /// What the person can do next.
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

    /// A notice about a long wait, for a person at a terminal.
    pub(crate) fn long_wait(self, what: &str) {
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
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.chars().count() > MAX_SHOWN_VALUE
    {
        let cut: String = value.chars().take(MAX_SHOWN_VALUE).collect();
        let cut = ContextValue::String(format!("{cut}…"));
        error.insert(ContextKind::InvalidValue, cut);
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
            let text = text.trim_start_matches("error: ").trim_end();
            let text = text.trim_end_matches("For more information, try '--help'.");
            print_message("gpukillctl: ", text.trim_end());
            print_message("hint: ", "gpukillctl --help, or --help after a command");
            Exit::BadUsage
        }
    }
}
