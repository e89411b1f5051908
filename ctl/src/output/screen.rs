//! The terminal during `list --watch`: the alternate screen without a cursor. The normal screen
//! is restored however the run ends.

use super::style::{OutputStyle, TerminalSize, terminal_size};
use super::text::Line;
use crate::exit::Error;
use std::io::{self, Write as _};
use std::panic;

/// The alternate screen, without cursor and line wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
/// The normal screen, also after an interrupted update.
const LEAVE: &str = "\x1b[?2026l\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The terminal shows everything between these two at once.
const BEGIN_UPDATE: &str = "\x1b[?2026h";
const END_UPDATE: &str = "\x1b[?2026l";

/// The terminal, taken over until this is dropped.
#[derive(Debug)]
pub(crate) struct Screen(());

impl Screen {
    pub(crate) fn enter() -> Result<Self, Error> {
        // A panic message belongs on the normal screen, where it stays.
        let said_before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let _ = write(LEAVE);
            said_before(panic);
        }));
        write(ENTER)?;
        Ok(Self(()))
    }

    /// Gives the terminal back for a while, as before a stop by Ctrl-Z.
    pub(crate) fn suspend(&self) -> Result<(), Error> {
        Ok(write(LEAVE)?)
    }

    /// Takes the terminal over again.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        Ok(write(ENTER)?)
    }

    /// Shows a frame in one write. `draw` gets the style with the current size of the terminal.
    pub(crate) fn show(
        &self,
        style: &OutputStyle,
        draw: impl FnOnce(&OutputStyle) -> Vec<Line>,
    ) -> Result<(), Error> {
        // The usual size when the terminal does not report one.
        let size = terminal_size().unwrap_or(TerminalSize {
            columns: 80,
            rows: 24,
        });
        let width = style.width.unwrap_or(size.columns).min(size.columns);
        let style = OutputStyle {
            width: Some(width),
            ..*style
        };
        Ok(write(&render_frame(draw(&style), size, &style))?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = write(LEAVE);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A frame as bytes: no more lines than the terminal has, and none wider.
fn render_frame(mut lines: Vec<Line>, size: TerminalSize, style: &OutputStyle) -> String {
    if lines.len() > size.rows {
        let kept = size.rows.saturating_sub(1);
        let more = lines.len() - kept;
        lines.truncate(kept);
        let ellipsis = style.symbols.ellipsis();
        lines.push(Line::plain(format!("{ellipsis} {more} more lines")));
    }
    let mut text = format!("{BEGIN_UPDATE}\x1b[H");
    let last = lines.len().saturating_sub(1);
    for (at, line) in lines.into_iter().enumerate() {
        let line = line.cut(style.width, style.symbols);
        text.push_str(&line.paint(style));
        // After the last column the cursor still stands on the last character, and clearing the
        // rest of the line would clear this character.
        if line.width() < size.columns {
            text.push_str("\x1b[K");
        }
        if at < last {
            text.push_str("\r\n");
        } else if at + 1 < size.rows {
            text.push_str("\r\n\x1b[J");
        }
    }
    text + END_UPDATE
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn framed(lines: &[&str], columns: usize, rows: usize) -> String {
        let lines = lines.iter().copied().map(Line::plain).collect();
        render_frame(
            lines,
            TerminalSize { columns, rows },
            &fixtures::style(Some(columns)),
        )
    }

    #[test]
    fn frame_overwrites_the_previous_frame() {
        assert_eq!(
            framed(&["one", "two"], 10, 5),
            "\x1b[?2026h\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J\x1b[?2026l"
        );
    }

    #[test]
    fn frame_fits_and_counts_hidden_lines() {
        assert_eq!(
            framed(&["1234", "123456", "x", "y", "z"], 4, 3),
            "\x1b[?2026h\x1b[H1234\r\n123…\r\n… 3…\x1b[?2026l"
        );
        assert_eq!(
            framed(&["a", "b", "c"], 20, 2),
            "\x1b[?2026h\x1b[Ha\x1b[K\r\n… 2 more lines\x1b[K\x1b[?2026l"
        );
    }
}
