//! Asks a person before something that cannot be undone.
//!
//! The question goes to stderr and the answer comes from stdin, and only where
//! both are terminals. A password is asked for at `/dev/tty` whatever the two are,
//! for there a program may wait for a person it cannot see; here that would let a
//! script hang that somebody started in a terminal, and would take as agreement
//! what was typed for another program of the same pipeline.

use crate::exit::{Exit, Failure};
use crate::output::look::is_watched;
use crate::output::message::ask;
use rustix::termios::isatty;
use std::io::{self, BufRead as _, Read as _};

/// Whether there is somebody to ask.
pub(super) fn can_ask() -> bool {
    isatty(io::stdin()) && is_watched()
}

/// The longest answer that is read.
const LONGEST: u64 = 64;

/// Asks, and waits for a line. Anything but `y` and `yes` is a no, and so is the
/// end of the input.
pub(super) fn agreed(question: &str) -> bool {
    // Whoever cannot read the question has not agreed to anything.
    let asked = ask(&format!("{question} [y/N] "));
    let mut line = String::new();
    let answer = io::stdin().lock().take(LONGEST).read_line(&mut line);
    if !line.ends_with('\n') {
        // The end of the input leaves the cursor behind the question.
        let _ = ask("\n");
    }
    asked.is_ok() && answer.is_ok() && is_yes(&line)
}

/// Asks whether to go on, where there is somebody to ask. `undone` says what is so
/// when not: `nothing was deleted`.
///
/// # Errors
/// When the answer is no, for what was wanted is not done, or nobody can be asked.
pub(super) fn must_agree(question: &str, undone: &str) -> Result<(), Failure> {
    if !can_ask() {
        return Err(Failure::NotDone {
            what: format!("{undone}: nobody can be asked here"),
            hint: Some("--yes does it without asking".into()),
            exit: Exit::BadUsage,
        });
    }
    if agreed(question) {
        return Ok(());
    }
    Err(Failure::NotDone {
        what: undone.to_owned(),
        hint: None,
        exit: Exit::Failed,
    })
}

/// Only a whole line is an answer: what precedes the end of the input may have
/// been meant to go on.
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
