//! One line on the terminal of stderr that is renewed in place while something is
//! waited for, and is gone before anything else is printed.

use super::line::Line;
use super::look::{Look, Symbols, is_watched_screen, watched_columns};
use crate::settings::{Format, LogLevel, Settings};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// What is over sooner needs no line.
const SHORT: Duration = Duration::from_millis(500);

/// To the first column, and the rest of the line cleared.
const CLEAR: &str = "\r\x1b[K";

/// The line. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Passing {
    begun: Instant,
    symbols: Symbols,
    line: Option<Line>,
    /// What stands on the terminal.
    drawn: Option<String>,
}

impl Passing {
    /// The line, where a person would see it and nothing but it.
    pub(crate) fn on_stderr(settings: &Settings) -> Option<Self> {
        let line = || Self {
            begun: Instant::now(),
            symbols: Look::of_stdout(settings).symbols,
            line: None,
            drawn: None,
        };
        (is_wanted(settings) && is_watched_screen()).then(line)
    }

    /// What it is made of.
    pub(crate) const fn symbols(&self) -> Symbols {
        self.symbols
    }

    /// Says this from now on.
    pub(crate) fn say(&mut self, line: Line) {
        self.line = Some(line);
        self.draw();
    }

    /// Draws it, where that was waited for long enough and it is not there.
    pub(crate) fn draw(&mut self) {
        let Some(line) = self.line.clone().filter(|_| self.begun.elapsed() >= SHORT) else {
            return;
        };
        // In the last column some terminals would go on to the next line.
        let most = watched_columns().saturating_sub(1);
        let text = line.cut(Some(most), self.symbols).text();
        if self.drawn.as_ref() != Some(&text) {
            write(&format!("\r{text}\x1b[K"));
            self.drawn = Some(text);
        }
    }

    /// Takes it away, until it is drawn again.
    pub(crate) fn remove(&mut self) {
        if self.drawn.take().is_some() {
            write(CLEAR);
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Whether these settings leave room for it: programs get none, and between the
/// steps that are said at some levels it would be in the way.
const fn is_wanted(settings: &Settings) -> bool {
    let is_for_people = match settings.output_format {
        Format::Json => false,
        // Only the settings can ask for forms that are not the table's.
        Format::Table | Format::Ndjson | Format::Csv => true,
    };
    let is_alone = match settings.log_level {
        LogLevel::Warn | LogLevel::Info => true,
        LogLevel::Error | LogLevel::Debug | LogLevel::Trace => false,
    };
    is_for_people && is_alone
}

/// A line that cannot be written is let go.
fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_who_want_no_steps_get_the_line() {
        let wanted = |output_format, log_level| {
            is_wanted(&Settings {
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
    fn what_is_over_soon_shows_nothing() {
        let mut line = Passing {
            begun: Instant::now(),
            symbols: Symbols::Unicode,
            line: None,
            drawn: None,
        };
        line.say(Line::plain("x"));
        assert_eq!(line.drawn, None);
    }
}
