//! The terminal while `list --watch` has it: another screen without a cursor,
//! and the old one back however the run ends.

use super::line::Line;
use super::look::{Look, Size, terminal_size};
use crate::exit::Failure;
use std::io::{self, Write as _};
use std::panic;

/// The alternate screen, without cursor and without wrapping of long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
/// The opposite, and the end of an update that was cut short.
const LEAVE: &str = "\x1b[?2026l\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The terminal shows what comes between the two at once.
const BEGIN_UPDATE: &str = "\x1b[?2026h";
const END_UPDATE: &str = "\x1b[?2026l";

/// The terminal, taken over until this is dropped.
#[derive(Debug)]
pub(crate) struct Screen(());

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn enter() -> Result<Self, Failure> {
        // The message of a panic belongs on the old screen, where it stays.
        let said_before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let _ = write(LEAVE);
            said_before(panic);
        }));
        write(ENTER)?;
        Ok(Self(()))
    }

    /// Gives the terminal back for a while, as before a stop by Ctrl-Z.
    pub(crate) fn suspend(&self) -> Result<(), Failure> {
        Ok(write(LEAVE)?)
    }

    /// Takes it over again.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        Ok(write(ENTER)?)
    }

    /// Shows a frame in one write. `draw` is given the look of the terminal as
    /// large as it is now.
    pub(crate) fn show(
        &self,
        look: &Look,
        draw: impl FnOnce(&Look) -> Vec<Line>,
    ) -> Result<(), Failure> {
        // What every terminal was before they could be asked.
        let size = terminal_size().unwrap_or(Size {
            columns: 80,
            rows: 24,
        });
        let width = look.width.unwrap_or(size.columns).min(size.columns);
        let look = Look {
            width: Some(width),
            ..*look
        };
        Ok(write(&frame(draw(&look), size, &look))?)
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

/// A frame as bytes: no more lines than the terminal has, none wider.
fn frame(mut lines: Vec<Line>, size: Size, look: &Look) -> String {
    if lines.len() > size.rows {
        let kept = size.rows.saturating_sub(1);
        let more = lines.len() - kept;
        lines.truncate(kept);
        let ellipsis = look.symbols.ellipsis();
        lines.push(Line::plain(format!("{ellipsis} {more} more lines")));
    }
    let mut text = format!("{BEGIN_UPDATE}\x1b[H");
    let last = lines.len().saturating_sub(1);
    for (at, line) in lines.into_iter().enumerate() {
        let line = line.cut(look.width, look.symbols);
        text.push_str(&line.paint(look));
        // In the last column the cursor stands on the last character still, and
        // clearing the rest of the line would clear that one.
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
    use super::super::sample;
    use super::*;

    fn framed(lines: &[&str], columns: usize, rows: usize) -> String {
        let lines = lines.iter().copied().map(Line::plain).collect();
        frame(lines, Size { columns, rows }, &sample::look(Some(columns)))
    }

    #[test]
    fn a_frame_is_drawn_over_the_one_before_and_clears_what_is_left_of_it() {
        assert_eq!(
            framed(&["one", "two"], 10, 5),
            "\x1b[?2026h\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J\x1b[?2026l"
        );
    }

    #[test]
    fn a_frame_fits_the_terminal_and_says_what_it_leaves_out() {
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
