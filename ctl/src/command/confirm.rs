//! Asks for confirmation before something that cannot be undone.
//!
//! The question goes to stderr and the answer comes from stdin, and only when both are
//! terminals. A password prompt uses `/dev/tty` whatever the two are, because such a program
//! may wait for a person. Here `/dev/tty` would let a script hang that was started in a
//! terminal, and would take for agreement what was typed for another program of the same
//! pipeline.

use crate::exit::{Error, Exit};
use crate::output::message::{ask, question_subject};
use crate::output::print_lines;
use crate::output::style::{OutputStyle, is_stderr_terminal, is_stdout_terminal};
use crate::output::text::Line;
use rustix::termios::isatty;
use std::io::{self, BufRead as _, Read as _};

/// Whether a person can be asked.
pub(super) fn can_ask() -> bool {
    isatty(io::stdin()) && is_stderr_terminal()
}

/// Maximum length of an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 64;

/// Asks and waits for a line. Anything but `y` and `yes` means no, and so does the end of the
/// input.
fn ask_yes_no(question: &str) -> bool {
    // A person who cannot read the question has not agreed.
    let asked = ask(&format!("{question} [y/N] "));
    let mut line = String::new();
    let answer = io::stdin()
        .lock()
        .take(MAX_ANSWER_BYTES)
        .read_line(&mut line);
    if !line.ends_with('\n') {
        // At the end of the input the cursor still stands behind the question.
        let _ = ask("\n");
    }
    asked.is_ok() && answer.is_ok() && is_yes(&line)
}

/// Prints the subject of a question where the person who answers sees it: on stderr when standard
/// output has another reader.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print_subject(lines: &[Line], style: &OutputStyle) -> Result<(), Error> {
    if !can_ask() || is_stdout_terminal() {
        return print_lines(lines, style);
    }
    let style = OutputStyle {
        color: false,
        ..*style
    };
    for line in lines {
        question_subject(&line.paint(&style));
    }
    Ok(())
}

/// Asks whether to go on, where a person can be asked. `failure` states the result otherwise:
/// `nothing was deleted`.
///
/// # Errors
/// The answer is no, or nobody can be asked; in both cases nothing is done.
pub(super) fn require_agreement(question: &str, failure: &str) -> Result<(), Error> {
    match can_ask() {
        true => agreement(question, failure),
        false => Err(no_terminal_error(failure)),
    }
}

/// The error where nobody can be asked.
pub(super) fn no_terminal_error(failure: &str) -> Error {
    Error::NotDone {
        what: format!("{failure}: there is no terminal to ask on"),
        hint: Some("--yes does it without asking".into()),
        exit: Exit::BadUsage,
    }
}

/// Asks a person. The answer no is an error, because nothing is done.
pub(super) fn agreement(question: &str, failure: &str) -> Result<(), Error> {
    if ask_yes_no(question) {
        return Ok(());
    }
    Err(Error::NotDone {
        what: failure.to_owned(),
        hint: None,
        exit: Exit::Failed,
    })
}

/// Only a whole line is an answer: a line cut by the end of the input may have been meant to go
/// on.
fn is_yes(line: &str) -> bool {
    line.strip_suffix('\n').is_some_and(|line| {
        let line = line.trim();
        line.eq_ignore_ascii_case("y") || line.eq_ignore_ascii_case("yes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_agree() {
        for line in ["y\n", "Y\n", "yes\n", " YES \n", "y\r\n"] {
            assert!(is_yes(line), "{line:?}");
        }
        for line in [
            "",
            "\n",
            "n\n",
            "no\n",
            "yy\n",
            "yes please\n",
            "y",
            "j\n",
            "1\n",
        ] {
            assert!(!is_yes(line), "{line:?}");
        }
    }
}
