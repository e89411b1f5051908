//! One line on the terminal at stderr that is redrawn in place during a wait and removed before
//! other output.

use super::message::Messages;
use super::style::{OutputStyle, Symbols, is_stderr_screen, stderr_columns};
use super::text::Line;
use crate::connect::WaitHooks;
use crate::settings::{Format, LogLevel, Settings};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// A shorter wait needs no line.
const MIN_WAIT: Duration = Duration::from_millis(500);

/// A shorter wait for any answer needs no line.
const MIN_ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Returns to the first column and clears the line.
const CLEAR: &str = "\r\x1b[K";

/// The line. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Spinner {
    started: Instant,
    min_wait: Duration,
    symbols: Symbols,
    line: Option<Line>,
    /// The line as drawn on the terminal.
    drawn: Option<String>,
}

impl Spinner {
    /// The line, if stderr is a terminal for people and nothing else is printed there.
    pub(crate) fn on_stderr(settings: &Settings) -> Option<Self> {
        let line = || Self {
            started: Instant::now(),
            min_wait: MIN_WAIT,
            symbols: OutputStyle::for_stdout(settings).symbols,
            line: None,
            drawn: None,
        };
        (Self::is_enabled(settings) && is_stderr_screen()).then(line)
    }

    /// The line for one long call, which states what the call waits for.
    pub(crate) fn waiting_for(what: &str, settings: &Settings) -> Option<Self> {
        let mut line = Self::on_stderr(settings)?;
        line.set_text(Line::plain(format!("waiting for {what}")));
        Some(line)
    }

    /// The line for a call without another one: whatever is called, the daemon has to answer.
    pub(crate) fn waiting_for_daemon(messages: Messages) -> Option<Self> {
        let line = || Self {
            started: Instant::now(),
            min_wait: MIN_ANSWER_WAIT,
            symbols: Symbols::Ascii,
            line: Some(Line::plain("waiting for gpukilld")),
            drawn: None,
        };
        (messages.shows_wait_lines() && is_stderr_screen()).then(line)
    }

    /// Whether the settings allow the line: not for programs, and not between debug messages.
    pub(crate) const fn is_enabled(settings: &Settings) -> bool {
        let is_for_people = match settings.output_format {
            Format::Json => false,
            // Only the settings can select formats other than the table.
            Format::Table | Format::Ndjson | Format::Csv => true,
        };
        let is_alone = match settings.log_level {
            LogLevel::Warn | LogLevel::Info => true,
            LogLevel::Error | LogLevel::Debug | LogLevel::Trace => false,
        };
        is_for_people && is_alone
    }

    /// The symbols for the line's text.
    pub(crate) const fn symbols(&self) -> Symbols {
        self.symbols
    }

    pub(crate) fn set_text(&mut self, line: Line) {
        self.line = Some(line);
        self.draw();
    }

    /// Draws the line if the wait was long enough and the line is not drawn already.
    pub(crate) fn draw(&mut self) {
        let Some(line) = self
            .line
            .clone()
            .filter(|_| self.started.elapsed() >= self.min_wait)
        else {
            return;
        };
        // Some terminals wrap after the last column.
        let max_width = stderr_columns().saturating_sub(1);
        let text = line.cut(Some(max_width), self.symbols).text();
        if self.drawn.as_ref() != Some(&text) {
            write(&format!("\r{text}\x1b[K"));
            self.drawn = Some(text);
        }
    }

    /// Removes the line until it is drawn again.
    pub(crate) fn remove(&mut self) {
        if self.drawn.take().is_some() {
            write(CLEAR);
        }
    }
}

impl WaitHooks for Option<Spinner> {
    fn long_wait_after(&self) -> Option<Duration> {
        let line = self.as_ref().filter(|line| line.drawn.is_none());
        line.map(|line| line.min_wait)
    }

    fn on_long_wait(&mut self) {
        if let Some(line) = self {
            line.draw();
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A line that cannot be written is dropped.
fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_without_debug_get_the_line() {
        let wanted = |output_format, log_level| {
            Spinner::is_enabled(&Settings {
                output_format,
                log_level,
                ..Settings::default()
            })
        };
        let levels = [
            LogLevel::Error,
            LogLevel::Warn,
            LogLevel::Info,
            LogLevel::Debug,
            LogLevel::Trace,
        ];
        let of = |format| levels.map(|level| wanted(format, level));
        assert_eq!(of(Format::Table), [false, true, true, false, false]);
        assert_eq!(of(Format::Json), [false; 5]);
    }

    #[test]
    fn long_wait_is_noted_until_the_line_is_drawn() {
        assert_eq!(None::<Spinner>.long_wait_after(), None);
        let line = |drawn| {
            Some(Spinner {
                started: Instant::now(),
                min_wait: MIN_WAIT,
                symbols: Symbols::Unicode,
                line: None,
                drawn,
            })
        };
        assert_eq!(line(None).long_wait_after(), Some(MIN_WAIT));
        assert_eq!(line(Some("x".into())).long_wait_after(), None);
    }

    #[test]
    fn short_wait_shows_nothing() {
        let mut line = Spinner {
            started: Instant::now(),
            min_wait: MIN_WAIT,
            symbols: Symbols::Unicode,
            line: None,
            drawn: None,
        };
        line.set_text(Line::plain("x"));
        assert_eq!(line.drawn, None);
    }
}
