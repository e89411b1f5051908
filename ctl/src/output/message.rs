//! What is said on stderr: failures, hints, warnings, and each step where that
//! is wanted. A message that cannot be written is let go.

use super::line::shown;
use super::look::{Symbols, is_watched};
use super::print;
use crate::exit::{Exit, Failure, Runs};
use crate::settings::LogLevel;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::io::{self, Write as _};

/// Says as much as is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    level: LogLevel,
    runs: Runs,
}

impl Default for Messages {
    fn default() -> Self {
        Self::new(LogLevel::Info, Runs::ByHand)
    }
}

impl Messages {
    /// Says what `level` asks for, of a daemon that runs so.
    pub(crate) fn new(level: LogLevel, runs: Runs) -> Self {
        Self { level, runs }
    }

    /// Why it ended, and what to do next.
    pub(crate) fn failure(self, failure: &Failure) {
        if matches!(failure, Failure::ReaderGone) {
            // Whoever read the output has gone on purpose.
            return;
        }
        say("gpukillctl: ", &failure.to_string());
        if let Some(hint) = failure.hint(self.runs) {
            self.hint(&hint);
        }
    }

    /// What the person can do next.
    pub(crate) fn hint(self, what: &str) {
        if self.level >= LogLevel::Warn {
            say("hint: ", what);
        }
    }

    /// Something to know that stops nothing.
    pub(crate) fn warn(self, what: &str) {
        if self.level >= LogLevel::Warn {
            say("gpukillctl: ", what);
        }
    }

    /// That something takes its time, to a person who looks on.
    pub(crate) fn wait(self, what: &str) {
        if self.level >= LogLevel::Info && is_watched() {
            say("gpukillctl: ", what);
        }
    }

    /// What a question is about, however little is wanted: whoever answers must
    /// have seen it.
    pub(crate) fn of_a_question(self, line: &str) {
        say("", line);
    }

    /// A step; worded only where it is said.
    pub(crate) fn debug(self, what: impl FnOnce() -> String) {
        if self.level >= LogLevel::Debug {
            say("gpukillctl: debug: ", &what());
        }
    }
}

/// What a program that the client starts says of its failure: the client names the program.
pub(crate) fn of_a_part(what: &str) {
    say("", what);
}

/// Asks on stderr. The answer is typed behind it, so no line ends here.
pub(crate) fn ask(question: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()
}

fn say(prefix: &str, text: &str) {
    let mut whole = String::from(prefix);
    for (at, line) in text.lines().enumerate() {
        if at > 0 {
            whole.push('\n');
        }
        whole.push_str(&shown(line, Symbols::Unicode));
    }
    whole.push('\n');
    let _ = io::stderr().lock().write_all(whole.as_bytes());
}

/// So much of a wrong value is shown: what is wrong with it stands behind it.
const SHOWN_OF_A_VALUE: usize = 200;

/// Prints what clap has to say of a command line: help to stdout, mistakes to
/// stderr.
pub(crate) fn usage(mut error: clap::Error) -> Exit {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.chars().count() > SHOWN_OF_A_VALUE
    {
        let cut: String = value.chars().take(SHOWN_OF_A_VALUE).collect();
        let cut = ContextValue::String(format!("{cut}…"));
        error.insert(ContextKind::InvalidValue, cut);
    }
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match print(&text) {
            Ok(()) => Exit::Done,
            Err(failure) => {
                Messages::default().failure(&failure);
                failure.exit()
            }
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say("gpukillctl: ", "a command is missing");
            say("", &text);
            Exit::BadUsage
        }
        _ => {
            let text = text.trim_start_matches("error: ").trim_end();
            let text = text.trim_end_matches("For more information, try '--help'.");
            say("gpukillctl: ", text.trim_end());
            say("hint: ", "gpukillctl --help, or --help after a command");
            Exit::BadUsage
        }
    }
}
