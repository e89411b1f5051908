//! The style of the output: width, characters and colours.

use crate::settings::{Colors, Settings, bounds};
use rustix::termios::{isatty, tcgetwinsize};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputStyle {
    /// The maximum width of a line; `None` for no limit.
    pub width: Option<usize>,
    /// Whether colours are written.
    pub color: bool,
    /// The set of symbols.
    pub symbols: Symbols,
    /// The time zone of clock times.
    pub zone: Zone,
}

/// The time zone of clock times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    /// The reader's time zone.
    Local,
    /// UTC, for tests.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "tests print the same everywhere")
    )]
    Utc,
}

/// The characters other than letters and digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbols {
    /// Blocks, dashes and dots.
    Unicode,
    /// ASCII only.
    Ascii,
}

/// How much room texts take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Density {
    /// Short forms, for terminals of less than 100 columns.
    Compact,
    /// Complete texts.
    Full,
}

impl Symbols {
    /// Stands for no value.
    pub(crate) const fn placeholder(self) -> &'static str {
        match self {
            Self::Unicode => "–",
            Self::Ascii => "-",
        }
    }

    /// Separates parts of a line.
    pub(crate) const fn separator(self) -> &'static str {
        match self {
            Self::Unicode => " · ",
            Self::Ascii => " | ",
        }
    }

    /// The signs of a chart, from the lowest value to the highest.
    pub(crate) const fn chart_levels(self) -> &'static [&'static str] {
        match self {
            Self::Unicode => &["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
            Self::Ascii => &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
        }
    }

    /// Marks cut text.
    pub(crate) const fn ellipsis(self) -> &'static str {
        match self {
            Self::Unicode => "…",
            Self::Ascii => "...",
        }
    }

    /// The unit of a temperature in a cell.
    pub(crate) const fn degree(self) -> &'static str {
        match self {
            Self::Unicode => "°",
            Self::Ascii => "C",
        }
    }

    /// The unit of a temperature in a sentence.
    pub(crate) const fn celsius(self) -> &'static str {
        match self {
            Self::Unicode => "°C",
            Self::Ascii => "C",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Environment {
    terminal: bool,
    terminal_width: Option<usize>,
    /// The variable COLUMNS, by which `watch` and others say how wide the terminal behind a
    /// pipe is.
    columns: Option<usize>,
    no_color: bool,
    dumb: bool,
    utf8: bool,
}

impl OutputStyle {
    /// How much room texts take at this width.
    pub(crate) fn density(&self) -> Density {
        match self.width {
            Some(..100) => Density::Compact,
            Some(_) | None => Density::Full,
        }
    }

    pub(crate) fn for_stdout(settings: &Settings) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let terminal = isatty(std::io::stdout());
        let environment = Environment {
            terminal,
            terminal_width: terminal
                .then(terminal_size)
                .flatten()
                .map(|size| size.columns),
            columns: set("COLUMNS").and_then(|value| parse_columns(&value)),
            no_color: set("NO_COLOR").is_some(),
            dumb: set("TERM").is_some_and(|term| term == "dumb"),
            utf8: is_utf8(set),
        };
        Self::from_environment(settings, environment)
    }

    fn from_environment(settings: &Settings, around: Environment) -> Self {
        let color = match settings.colors {
            Colors::Always => true,
            Colors::Never => false,
            Colors::Auto => around.terminal && !around.no_color && !around.dumb,
        };
        Self {
            width: settings
                .table_width
                .or(around.terminal_width)
                .or(around.columns),
            color,
            symbols: if around.utf8 {
                Symbols::Unicode
            } else {
                Symbols::Ascii
            },
            zone: Zone::Local,
        }
    }
}

/// A width that `--width` would accept too.
fn parse_columns(value: &OsStr) -> Option<usize> {
    let columns = value.to_str()?.parse::<u64>().ok()?;
    let columns = bounds::WIDTH.contains(&columns).then_some(columns)?;
    usize::try_from(columns).ok()
}

/// Whether the locale's character set is UTF-8.
fn is_utf8(set: impl Fn(&str) -> Option<OsString>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

pub(crate) fn is_stdout_terminal() -> bool {
    isatty(std::io::stdout())
}

/// Whether standard error is a terminal, so that a person reads it at once.
pub(crate) fn is_stderr_terminal() -> bool {
    isatty(std::io::stderr())
}

/// Whether standard output is a terminal that supports cursor movement.
pub(crate) fn is_stdout_screen() -> bool {
    is_stdout_terminal() && !is_dumb()
}

/// Whether standard error is a terminal that supports cursor movement.
pub(crate) fn is_stderr_screen() -> bool {
    is_stderr_terminal() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The columns of the terminal at standard error; 80 when the terminal does not report its
/// size.
pub(crate) fn stderr_columns() -> usize {
    stderr_width().unwrap_or(80)
}

/// The columns of the terminal at standard error; `None` when standard error is no terminal or
/// does not report its size.
pub(crate) fn stderr_width() -> Option<usize> {
    size_of(std::io::stderr()).map(|size| size.columns)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    /// Characters in a row.
    pub columns: usize,
    pub rows: usize,
}

/// The size of the terminal at standard output, if it reports one.
pub(crate) fn terminal_size() -> Option<TerminalSize> {
    size_of(std::io::stdout())
}

fn size_of(stream: impl AsFd) -> Option<TerminalSize> {
    let size = tcgetwinsize(stream).ok()?;
    let size = TerminalSize {
        columns: size.ws_col.into(),
        rows: size.ws_row.into(),
    };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: Environment = Environment {
        terminal: true,
        terminal_width: Some(132),
        columns: None,
        no_color: false,
        dumb: false,
        utf8: true,
    };
    const PIPE: Environment = Environment {
        terminal: false,
        terminal_width: None,
        ..TERMINAL
    };

    #[test]
    fn colours_need_a_terminal_and_consent() {
        let colored = |colors, around| {
            let settings = Settings {
                colors,
                ..Settings::default()
            };
            OutputStyle::from_environment(&settings, around).color
        };
        let no_color = Environment {
            no_color: true,
            ..TERMINAL
        };
        let dumb = Environment {
            dumb: true,
            ..TERMINAL
        };
        assert!(colored(Colors::Auto, TERMINAL));
        for around in [PIPE, no_color, dumb] {
            assert!(!colored(Colors::Auto, around), "{around:?}");
            assert!(colored(Colors::Always, around), "{around:?}");
        }
        assert!(!colored(Colors::Never, TERMINAL));
    }

    #[test]
    fn width_is_set_or_the_terminals() {
        let width = |table_width, around| {
            let settings = Settings {
                table_width,
                ..Settings::default()
            };
            OutputStyle::from_environment(&settings, around).width
        };
        assert_eq!(width(Some(90), TERMINAL), Some(90));
        assert_eq!(width(Some(90), PIPE), Some(90));
        assert_eq!(width(None, TERMINAL), Some(132));
        assert_eq!(width(None, PIPE), None);
        // The terminal itself knows better.
        for (around, expected) in [(TERMINAL, 132), (PIPE, 80)] {
            let around = Environment {
                columns: Some(80),
                ..around
            };
            assert_eq!(width(None, around), Some(expected));
            assert_eq!(width(Some(90), around), Some(90));
        }
    }

    #[test]
    fn only_a_usable_number_of_columns_counts() {
        for (value, expected) in [
            ("80", Some(80)),
            ("20", Some(20)),
            ("19", None),
            ("0", None),
            ("-1", None),
            ("99999", None),
            ("wide", None),
        ] {
            assert_eq!(parse_columns(OsStr::new(value)), expected, "{value}");
        }
    }

    #[test]
    fn first_locale_variable_decides() {
        let utf8 = |all: &str, ctype: &str, lang: &str| {
            is_utf8(|name| {
                let value = match name {
                    "LC_ALL" => all,
                    "LC_CTYPE" => ctype,
                    "LANG" => lang,
                    other => panic!("{other}"),
                };
                (!value.is_empty()).then(|| value.into())
            })
        };
        assert!(utf8("", "", "en_GB.UTF-8"));
        assert!(utf8("C.utf8", "C", "C"));
        assert!(utf8("", "de_DE.UTF-8", "C"));
        assert!(!utf8("C", "", "en_GB.UTF-8"));
        assert!(!utf8("", "", ""));
    }
}
