//! A line for people: pieces of text with a tone, measured and cut by the
//! columns they take on a terminal.

use super::look::{Look, Symbols};
use gpukill_proto::text::visible;
use nu_ansi_term::{Color, Style};
use unicode_width::UnicodeWidthChar as _;

/// What a piece is about. A colour follows from it; a meaning never depends on
/// the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As any text.
    Plain,
    /// Headings.
    Strong,
    /// Of less interest.
    Faint,
    /// At work.
    Busy,
    /// Worth a look: memory held at nothing, a value that is old.
    Doubtful,
    /// Broken.
    Broken,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Faint => Style::new().dimmed(),
            Self::Busy => Color::Green.normal(),
            Self::Doubtful => Color::Yellow.normal(),
            Self::Broken => Color::Red.bold(),
        }
    }
}

/// Pieces of text on one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(String, Tone)>);

impl Line {
    /// One plain text.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    /// One text in a tone.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self(vec![(text.into(), tone)])
    }

    /// Adds a text at the end.
    pub(crate) fn push(&mut self, text: impl Into<String> + AsRef<str>, tone: Tone) {
        match self.0.last_mut() {
            // A table of a thousand rows has ten times as many plain pieces.
            Some((last, Tone::Plain)) if tone == Tone::Plain => last.push_str(text.as_ref()),
            Some(_) | None => self.0.push((text.into(), tone)),
        }
    }

    /// Adds so many blanks at the end.
    pub(crate) fn pad(&mut self, columns: usize) {
        if columns > 0 {
            self.push("", Tone::Plain);
        }
        const BLANKS: &str = "                                ";
        if let Some((last, _)) = self.0.last_mut() {
            let mut left = columns;
            while left > 0 {
                let now = left.min(BLANKS.len());
                last.push_str(&BLANKS[..now]);
                left -= now;
            }
        }
    }

    /// Adds another line at the end.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many columns it takes.
    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(text, _)| width(text)).sum()
    }

    /// No wider than `most`: cut with an ellipsis where it is.
    pub(crate) fn cut(mut self, most: Option<usize>, symbols: Symbols) -> Self {
        let Some(most) = most.filter(|most| self.width() > *most) else {
            return self;
        };
        let mut room = most.saturating_sub(width(symbols.ellipsis()));
        let mut kept = 0;
        for (text, _) in &mut self.0 {
            let taken = fitting(text, room);
            let whole = taken == text.len();
            room -= width(&text[..taken]);
            text.truncate(taken);
            kept += 1;
            if !whole {
                text.push_str(symbols.ellipsis());
                break;
            }
        }
        self.0.truncate(kept);
        self
    }

    /// Without blanks at its end.
    pub(crate) fn trimmed(mut self) -> Self {
        while let Some((text, _)) = self.0.last_mut() {
            text.truncate(text.trim_end_matches(' ').len());
            if !text.is_empty() {
                break;
            }
            self.0.pop();
        }
        self
    }

    /// Its text alone.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// Its text, with colours where the look has them.
    pub(crate) fn paint(&self, look: &Look) -> String {
        let mut painted = String::new();
        self.paint_to(&mut painted, look);
        painted
    }

    /// The same, at the end of another text.
    pub(crate) fn paint_to(&self, end: &mut String, look: &Look) {
        for (text, tone) in self.0.iter().filter(|(text, _)| !text.is_empty()) {
            if look.color {
                end.push_str(&tone.style().paint(text.as_str()).to_string());
            } else {
                end.push_str(text);
            }
        }
    }
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.len();
    }
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// How many bytes of a text fit into so many columns.
fn fitting(text: &str, columns: usize) -> usize {
    let mut used = 0;
    text.char_indices()
        .find(|(_, c)| {
            used += c.width().unwrap_or(0);
            used > columns
        })
        .map_or(text.len(), |(at, _)| at)
}

/// A text cut to so many columns, with an ellipsis where it is.
pub(crate) fn cut(text: &str, most: usize, symbols: Symbols) -> String {
    Line::plain(text).cut(Some(most), symbols).text()
}

/// The most bytes of one text from the daemon that are looked at. It cuts the
/// longest, a command line, to 512 itself; escapes make that longer.
const LONGEST: usize = 4096;

/// A text of the daemon made safe to show. The daemon has done this already;
/// this terminal does not rely on it.
pub(crate) fn shown(text: &str, symbols: Symbols) -> String {
    let text = visible(text.as_bytes(), LONGEST);
    match symbols {
        Symbols::Unicode => text,
        Symbols::Ascii if text.is_ascii() => text,
        // An 8-bit terminal takes parts of UTF-8 for controls.
        Symbols::Ascii => text
            .replace(Symbols::Unicode.celsius(), symbols.celsius())
            .chars()
            .map(|c| match c {
                '…' => symbols.ellipsis().to_owned(),
                c if c.is_ascii() => c.to_string(),
                c => c.escape_unicode().to_string(),
            })
            .collect(),
    }
}

/// A text on as many lines as it needs, broken at blanks; every line but the
/// first begins with `indent` blanks. A word that is longer than a line stays
/// whole.
pub(crate) fn wrap(text: &str, first: usize, indent: usize, most: Option<usize>) -> Vec<String> {
    let most = most.unwrap_or(usize::MAX);
    let mut lines = vec![String::new()];
    let mut used = first;
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let begins = line.trim_start().is_empty();
        let blank = usize::from(!begins);
        if used + blank + width(word) > most && !begins {
            used = indent + width(word);
            lines.push(format!("{:indent$}{word}", ""));
            continue;
        }
        if !begins {
            line.push(' ');
        }
        line.push_str(word);
        used += blank + width(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_line_is_cut_by_columns_and_never_inside_a_character() {
        let cases = [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("模型模型", 8, "模型模型"),
            ("模型模型", 7, "模型模…"),
            ("模型模型", 6, "模型…"),
            ("abc", 0, "…"),
        ];
        for (text, most, expected) in cases {
            assert_eq!(cut(text, most, Symbols::Unicode), expected, "{text} {most}");
        }
        assert_eq!(cut("abcdefgh", 6, Symbols::Ascii), "abc...");
    }

    #[test]
    fn colours_are_written_only_where_they_are_wanted() {
        let mut line = Line::plain("GPU ");
        line.push("lost", Tone::Broken);
        let plain = sample::look(None);
        let colored = Look {
            color: true,
            ..plain
        };
        assert_eq!(line.paint(&plain), "GPU lost");
        assert_eq!(line.paint(&colored), "GPU \u{1b}[1;31mlost\u{1b}[0m");
    }

    #[test]
    fn a_terminal_without_utf_8_gets_ascii_only() {
        assert_eq!(shown("naïve\x1b[2J", Symbols::Ascii), "na\\u{ef}ve\\x1b[2J");
        assert_eq!(shown("naïve", Symbols::Unicode), "naïve");
    }

    #[test]
    fn a_temperature_in_a_sentence_needs_no_degree_sign() {
        let said = "temperature at or above 85 °C, now 91 °C";
        assert_eq!(shown(said, Symbols::Unicode), said);
        assert_eq!(
            shown(said, Symbols::Ascii),
            "temperature at or above 85 C, now 91 C"
        );
    }

    #[test]
    fn a_sentence_is_broken_at_blanks() {
        assert_eq!(
            wrap("no library here: install it", 4, 2, Some(16)),
            ["no library", "  here: install", "  it"]
        );
        assert_eq!(wrap("one line", 4, 2, None), ["one line"]);
    }
}
