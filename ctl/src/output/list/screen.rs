//! The terminal during `list --watch`: the alternate screen without a cursor, and the keyboard. The
//! normal screen is restored however the run ends.

use crate::exit::Error;
use crate::output::list::keyboard::{self, Scroll};
use crate::output::style::{OutputStyle, Symbols, TerminalSize, terminal_size};
use crate::output::text::{Line, Tone, width};
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
pub(crate) struct Screen {
    /// How many lines of the frame are above the screen.
    offset: usize,
}

/// Whether frames follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFlow {
    Live,
    Paused,
}

impl Screen {
    pub(crate) fn enter() -> Result<Self, Error> {
        // A panic message belongs on the normal screen, where it stays.
        let said_before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            keyboard::give_back();
            let _ = write(LEAVE);
            said_before(panic);
        }));
        let screen = Self { offset: 0 };
        screen.resume()?;
        Ok(screen)
    }

    /// Gives the terminal back for a while, as before a stop by Ctrl-Z.
    pub(crate) fn suspend(&self) -> Result<(), Error> {
        keyboard::give_back();
        Ok(write(LEAVE)?)
    }

    /// Takes the terminal over again.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        keyboard::take();
        Ok(write(ENTER)?)
    }

    /// Scrolls the next frame.
    pub(crate) fn scroll(&mut self, by: Scroll) {
        // One line of the page before stays, and one has the number of hidden lines.
        let page = screen_size().rows.saturating_sub(2).max(1);
        self.offset = match by {
            Scroll::LineUp => self.offset.saturating_sub(1),
            Scroll::LineDown => self.offset.saturating_add(1),
            Scroll::PageUp => self.offset.saturating_sub(page),
            Scroll::PageDown => self.offset.saturating_add(page),
        };
    }

    /// Shows a frame in one write. `draw` gets the style with the current size of the terminal.
    pub(crate) fn show(
        &mut self,
        style: &OutputStyle,
        flow: FrameFlow,
        draw: impl FnOnce(&OutputStyle) -> Vec<Line>,
    ) -> Result<(), Error> {
        let size = screen_size();
        let width = style.width.unwrap_or(size.columns).min(size.columns);
        let style = OutputStyle {
            width: Some(width),
            ..*style
        };
        let hint = keyboard::take().then(|| key_hint(flow, style.symbols));
        let footer = Footer { flow, hint };
        let frame;
        (frame, self.offset) = render_frame(draw(&style), size, &style, self.offset, footer);
        Ok(write(&frame)?)
    }
}

/// The size of the terminal; the usual one if it does not report one.
fn screen_size() -> TerminalSize {
    terminal_size().unwrap_or(TerminalSize {
        columns: 80,
        rows: 24,
    })
}

/// The keys that have an effect.
fn key_hint(flow: FrameFlow, symbols: Symbols) -> String {
    let space = match flow {
        FrameFlow::Live => "pause",
        FrameFlow::Paused => "continue",
    };
    let arrows = match symbols {
        Symbols::Unicode => "↑↓",
        Symbols::Ascii => "arrows",
    };
    let dot = symbols.separator();
    format!("q quit{dot}space {space}{dot}{arrows} scroll")
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            keyboard::give_back();
            let _ = write(LEAVE);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The last line of the terminal.
struct Footer {
    flow: FrameFlow,
    /// The keys; `None` without a keyboard.
    hint: Option<String>,
}

impl Footer {
    /// The footer with the number of hidden lines; `None` if there is nothing to say. The keys
    /// appear only where they fit.
    fn line(&self, hidden: Option<String>, most: usize, symbols: Symbols) -> Option<Line> {
        let paused = (self.flow == FrameFlow::Paused).then(|| "paused".to_owned());
        let state: Vec<String> = paused.into_iter().chain(hidden).collect();
        let full: Vec<String> = state.iter().chain(&self.hint).cloned().collect();
        let (full, state) = (
            full.join(symbols.separator()),
            state.join(symbols.separator()),
        );
        let text = if width(&full) <= most { full } else { state };
        (!text.is_empty()).then(|| Line::with_tone(text, Tone::Faint))
    }
}

/// `1 more line`, `3 more lines`.
fn count_lines(count: usize, more: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {more}line{plural}")
}

/// A frame as bytes, and its offset: no more lines than the terminal has, and none wider.
fn render_frame(
    mut lines: Vec<Line>,
    size: TerminalSize,
    style: &OutputStyle,
    mut offset: usize,
    footer: Footer,
) -> (String, usize) {
    let symbols = style.symbols;
    let most = style.width.unwrap_or(size.columns);
    let reserved = usize::from(footer.flow == FrameFlow::Paused);
    let mut at_bottom = None;
    if lines.len() + reserved > size.rows {
        let kept = size.rows.saturating_sub(1);
        offset = offset.min(lines.len() - kept);
        let below = lines.len() - kept - offset;
        let hidden = match below {
            0 => format!("{} {} above", symbols.ellipsis(), count_lines(offset, "")),
            more => format!("{} {}", symbols.ellipsis(), count_lines(more, "more ")),
        };
        lines.drain(..offset);
        lines.truncate(kept);
        lines.extend(footer.line(Some(hidden), most, symbols));
    } else {
        offset = 0;
        at_bottom = footer
            .line(None, most, symbols)
            .filter(|_| lines.len() < size.rows);
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
    if let Some(line) = at_bottom {
        text.push_str(&format!("\x1b[{};1H", size.rows));
        text.push_str(&line.paint(style));
    }
    (text + END_UPDATE, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures;

    fn framed(lines: &[&str], columns: usize, rows: usize) -> String {
        scrolled(lines, (columns, rows), 0, FrameFlow::Live, None).0
    }

    fn scrolled(
        lines: &[&str],
        (columns, rows): (usize, usize),
        offset: usize,
        flow: FrameFlow,
        hint: Option<&str>,
    ) -> (String, usize) {
        let lines = lines.iter().copied().map(Line::plain).collect();
        let size = TerminalSize { columns, rows };
        let hint = hint.map(str::to_owned);
        let style = fixtures::style(Some(columns));
        render_frame(lines, size, &style, offset, Footer { flow, hint })
    }

    #[test]
    fn keys_are_named_where_there_is_room() {
        let shown = |lines: &[&str], columns, flow| {
            let (frame, _) = scrolled(lines, (columns, 3), 0, flow, Some("q quit"));
            let frame = frame.strip_prefix("\x1b[?2026h\x1b[H").unwrap().to_owned();
            frame.strip_suffix(END_UPDATE).unwrap().to_owned()
        };
        let (live, paused) = (FrameFlow::Live, FrameFlow::Paused);
        let one = "a\x1b[K\r\n\x1b[J";
        assert_eq!(shown(&["a"], 20, live), format!("{one}\x1b[3;1Hq quit"));
        assert_eq!(shown(&["a"], 5, live), one);
        assert_eq!(shown(&["a"], 8, paused), format!("{one}\x1b[3;1Hpaused"));
        let three = ["a", "b", "c"];
        let all = "a\x1b[K\r\nb\x1b[K\r\nc\x1b[K";
        assert_eq!(shown(&three, 20, live), all);
        assert_eq!(
            shown(&three, 40, paused),
            "a\x1b[K\r\nb\x1b[K\r\npaused · … 1 more line · q quit\x1b[K"
        );
    }

    #[test]
    fn long_frame_scrolls_to_its_last_line() {
        let lines = ["a", "b", "c", "d", "e"];
        let shown = |offset| scrolled(&lines, (20, 3), offset, FrameFlow::Live, None);
        let frame = |first, second, last| {
            format!("\x1b[?2026h\x1b[H{first}\x1b[K\r\n{second}\x1b[K\r\n… {last}\x1b[K\x1b[?2026l")
        };
        assert_eq!(shown(1), (frame("b", "c", "2 more lines"), 1));
        let end = (frame("d", "e", "3 lines above"), 3);
        assert_eq!(shown(3), end);
        assert_eq!(shown(99), end);
        // A frame that fits is not scrolled.
        let short = scrolled(&lines[..2], (20, 3), 9, FrameFlow::Live, None);
        assert_eq!(short.1, 0);
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
