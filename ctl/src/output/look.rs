//! How output looks: its width, its characters, and whether it has colours.

use crate::settings::{Colors, Settings};
use rustix::termios::{isatty, tcgetwinsize};
use std::ffi::OsString;
use std::os::fd::AsFd;

/// How output looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// The most columns of a line; `None` has no limit.
    pub width: Option<usize>,
    /// Whether colours are written.
    pub color: bool,
    /// What is drawn with.
    pub symbols: Symbols,
    /// Whose clock times are shown.
    pub zone: Zone,
}

/// Whose clock times are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    /// That of the person who looks.
    Local,
    /// Everybody's; tests need it.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "tests print the same everywhere")
    )]
    Utc,
}

/// The characters that are not letters or digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbols {
    /// Blocks, dashes and dots.
    Unicode,
    /// Nothing beyond ASCII.
    Ascii,
}

impl Symbols {
    /// There is none.
    pub(crate) const fn none(self) -> &'static str {
        match self {
            Self::Unicode => "–",
            Self::Ascii => "-",
        }
    }

    /// Between parts of a line.
    pub(crate) const fn dot(self) -> &'static str {
        match self {
            Self::Unicode => " · ",
            Self::Ascii => " | ",
        }
    }

    /// Something was cut here.
    pub(crate) const fn ellipsis(self) -> &'static str {
        match self {
            Self::Unicode => "…",
            Self::Ascii => "...",
        }
    }

    /// After a temperature.
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

/// What the surroundings say of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Surroundings {
    terminal: bool,
    terminal_width: Option<usize>,
    no_color: bool,
    dumb: bool,
    utf8: bool,
}

impl Look {
    /// How standard output looks.
    pub(crate) fn of_stdout(settings: &Settings) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let terminal = isatty(std::io::stdout());
        let surroundings = Surroundings {
            terminal,
            terminal_width: terminal
                .then(terminal_size)
                .flatten()
                .map(|size| size.columns),
            no_color: set("NO_COLOR").is_some(),
            dumb: set("TERM").is_some_and(|term| term == "dumb"),
            utf8: is_utf8(set),
        };
        Self::decide(settings, surroundings)
    }

    fn decide(settings: &Settings, around: Surroundings) -> Self {
        let color = match settings.colors {
            Colors::Always => true,
            Colors::Never => false,
            Colors::Auto => around.terminal && !around.no_color && !around.dumb,
        };
        Self {
            width: settings.table_width.or(around.terminal_width),
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

/// Whether the locale's characters are UTF-8.
fn is_utf8(set: impl Fn(&str) -> Option<OsString>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    isatty(std::io::stdout())
}

/// Whether standard error is a terminal, and what is said there is read at once.
pub(crate) fn is_watched() -> bool {
    isatty(std::io::stderr())
}

/// Whether standard output is a terminal that can be drawn on.
pub(crate) fn is_screen() -> bool {
    is_terminal() && !is_dumb()
}

/// Whether standard error is a terminal that can be drawn on.
pub(crate) fn is_watched_screen() -> bool {
    is_watched() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The columns of the terminal at standard error; what every terminal had before
/// they could be asked, where it does not know.
pub(crate) fn watched_columns() -> usize {
    size_of(std::io::stderr()).map_or(80, |size| size.columns)
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Characters in a row.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
}

/// The size of the terminal at standard output, where it knows its own.
pub(crate) fn terminal_size() -> Option<Size> {
    size_of(std::io::stdout())
}

fn size_of(stream: impl AsFd) -> Option<Size> {
    let size = tcgetwinsize(stream).ok()?;
    let size = Size {
        columns: size.ws_col.into(),
        rows: size.ws_row.into(),
    };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: Surroundings = Surroundings {
        terminal: true,
        terminal_width: Some(132),
        no_color: false,
        dumb: false,
        utf8: true,
    };
    const PIPE: Surroundings = Surroundings {
        terminal: false,
        terminal_width: None,
        ..TERMINAL
    };

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let colored = |colors, around| {
            let settings = Settings {
                colors,
                ..Settings::default()
            };
            Look::decide(&settings, around).color
        };
        let no_color = Surroundings {
            no_color: true,
            ..TERMINAL
        };
        let dumb = Surroundings {
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
    fn the_width_is_the_one_set_then_the_terminals_and_a_pipe_has_none() {
        let width = |table_width, around| {
            let settings = Settings {
                table_width,
                ..Settings::default()
            };
            Look::decide(&settings, around).width
        };
        assert_eq!(width(Some(90), TERMINAL), Some(90));
        assert_eq!(width(Some(90), PIPE), Some(90));
        assert_eq!(width(None, TERMINAL), Some(132));
        assert_eq!(width(None, PIPE), None);
    }

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
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
