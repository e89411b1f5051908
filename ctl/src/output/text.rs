//! A line for people: pieces of text with a tone, measured and cut by terminal columns.

use super::style::{OutputStyle, Symbols};
use gpukill_proto::text::sanitize;
use nu_ansi_term::{Color, Style};
use unicode_width::UnicodeWidthChar as _;

/// The kind of a piece of text. It selects a colour; the meaning never depends on the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Normal text.
    Plain,
    /// Headings.
    Strong,
    /// Less important.
    Faint,
    /// In use.
    Busy,
    /// Needs attention: memory held by an idle process, a stale value.
    Doubtful,
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
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::with_tone(text, Tone::Plain)
    }

    pub(crate) fn with_tone(text: impl Into<String>, tone: Tone) -> Self {
        Self(vec![(text.into(), tone)])
    }

    /// Appends a piece.
    pub(crate) fn push(&mut self, text: impl Into<String> + AsRef<str>, tone: Tone) {
        match self.0.last_mut() {
            // Merging saves work: a table of a thousand rows has ten times as many plain
            // pieces.
            Some((last, Tone::Plain)) if tone == Tone::Plain => last.push_str(text.as_ref()),
            Some(_) | None => self.0.push((text.into(), tone)),
        }
    }

    /// Appends this number of blanks.
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

    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The width in columns.
    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(text, _)| width(text)).sum()
    }

    /// Cuts the line to `max_width` columns, with an ellipsis.
    pub(crate) fn cut(mut self, max_width: Option<usize>, symbols: Symbols) -> Self {
        let Some(max_width) = max_width.filter(|max_width| self.width() > *max_width) else {
            return self;
        };
        let mut room = max_width.saturating_sub(width(symbols.ellipsis()));
        let mut kept = 0;
        for (text, _) in &mut self.0 {
            let taken = fitting_bytes(text, room);
            let is_complete = taken == text.len();
            room -= width(&text[..taken]);
            text.truncate(taken);
            kept += 1;
            if !is_complete {
                text.push_str(symbols.ellipsis());
                break;
            }
        }
        self.0.truncate(kept);
        self
    }

    /// Removes trailing blanks.
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

    /// The text without tones.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// The text, with colours if the style has them.
    pub(crate) fn paint(&self, style: &OutputStyle) -> String {
        let mut colored = String::new();
        self.paint_to(&mut colored, style);
        colored
    }

    /// Appends the painted text to `end`.
    pub(crate) fn paint_to(&self, end: &mut String, style: &OutputStyle) {
        for (text, tone) in self.0.iter().filter(|(text, _)| !text.is_empty()) {
            if style.color {
                end.push_str(&tone.style().paint(text.as_str()).to_string());
            } else {
                end.push_str(text);
            }
        }
    }
}

/// The width of a text in columns.
pub(crate) fn width(text: &str) -> usize {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.len();
    }
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The number of bytes of a text that fit into this many columns.
fn fitting_bytes(text: &str, columns: usize) -> usize {
    let mut used = 0;
    text.char_indices()
        .find(|(_, c)| {
            used += c.width().unwrap_or(0);
            used > columns
        })
        .map_or(text.len(), |(at, _)| at)
}

/// Cuts a text to this many columns, with an ellipsis.
pub(crate) fn cut(text: &str, max_width: usize, symbols: Symbols) -> String {
    Line::plain(text).cut(Some(max_width), symbols).text()
}

/// Maximum number of bytes of a daemon's text to process. The daemon cuts the longest text, a
/// command line, to 512 bytes; escapes make it longer.
const MAX_SHOWN_BYTES: usize = 4096;

/// Escapes a text of the daemon. The daemon has done this already, but the client does not rely
/// on it.
pub(crate) fn escaped(text: &str, symbols: Symbols) -> String {
    let text = sanitize(text.as_bytes(), MAX_SHOWN_BYTES);
    match symbols {
        Symbols::Unicode => text,
        Symbols::Ascii if text.is_ascii() => text,
        // An 8-bit terminal may take parts of UTF-8 for control characters.
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

/// Breaks a text at blanks into lines. Every line but the first begins with `indent` blanks. A
/// word longer than a line stays whole.
pub(crate) fn wrap(
    text: &str,
    first: usize,
    indent: usize,
    max_width: Option<usize>,
) -> Vec<String> {
    let max_width = max_width.unwrap_or(usize::MAX);
    let mut lines = vec![String::new()];
    let mut used = first;
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let begins = line.trim_start().is_empty();
        let blank = usize::from(!begins);
        if used + blank + width(word) > max_width && !begins {
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

/// A text on as many lines as needed. Every line but the first is indented.
pub(crate) fn wrapped_lines(text: &str, tone: Tone, style: &OutputStyle) -> Vec<Line> {
    let texts = wrap(text, 0, 2, style.width).into_iter();
    texts.map(|text| Line::with_tone(text, tone)).collect()
}

/// A text of the daemon, escaped, on as many lines as needed.
pub(crate) fn escaped_lines(text: &str, tone: Tone, style: &OutputStyle) -> Vec<Line> {
    wrapped_lines(&escaped(text, style.symbols), tone, style)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    #[test]
    fn cut_counts_columns_and_keeps_characters_whole() {
        let cases = [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("模型模型", 8, "模型模型"),
            ("模型模型", 7, "模型模…"),
            ("模型模型", 6, "模型…"),
            ("abc", 0, "…"),
        ];
        for (text, max_width, expected) in cases {
            assert_eq!(
                cut(text, max_width, Symbols::Unicode),
                expected,
                "{text} {max_width}"
            );
        }
        assert_eq!(cut("abcdefgh", 6, Symbols::Ascii), "abc...");
    }

    #[test]
    fn colours_are_optional() {
        let mut line = Line::plain("GPU ");
        line.push("lost", Tone::Broken);
        let plain = fixtures::style(None);
        let colored = OutputStyle {
            color: true,
            ..plain
        };
        assert_eq!(line.paint(&plain), "GPU lost");
        assert_eq!(line.paint(&colored), "GPU \u{1b}[1;31mlost\u{1b}[0m");
    }

    #[test]
    fn ascii_terminal_gets_ascii() {
        assert_eq!(
            escaped("naïve\x1b[2J", Symbols::Ascii),
            "na\\u{ef}ve\\x1b[2J"
        );
        assert_eq!(escaped("naïve", Symbols::Unicode), "naïve");
    }

    #[test]
    fn degree_sign_is_dropped_in_ascii() {
        let alert = "temperature at or above 85 °C, now 91 °C";
        assert_eq!(escaped(alert, Symbols::Unicode), alert);
        assert_eq!(
            escaped(alert, Symbols::Ascii),
            "temperature at or above 85 C, now 91 C"
        );
    }

    #[test]
    fn text_is_broken_at_blanks() {
        assert_eq!(
            wrap("no library here: install it", 4, 2, Some(16)),
            ["no library", "  here: install", "  it"]
        );
        assert_eq!(wrap("one line", 4, 2, None), ["one line"]);
    }
}
