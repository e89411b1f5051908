//! Draws frames: in place on a terminal, else one after another.

use super::super::{ListRequest, SelectedSnapshot, now, render_document, user_lookup};
use super::feed::Update;
use crate::connect::AnnotatedSnapshot;
use crate::exit::Error;
use crate::output::csv::Header;
use crate::output::list::keyboard::{Key, read_keys};
use crate::output::list::screen::{FrameFlow, Screen};
use crate::output::message::Messages;
use crate::output::style::{OutputStyle, is_stdout_screen};
use crate::output::text::{Line, Tone, escaped};
use crate::output::{list::view, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::units::Timestamp;
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

pub(super) struct FrameOutput<'a> {
    wanted: &'a ListRequest,
    style: OutputStyle,
    messages: Messages,
    destination: Destination,
    annotated: Option<AnnotatedSnapshot>,
    /// Why the snapshot may be old.
    away: Option<(Error, Duration)>,
    pause: Option<Pause>,
}

/// A pause: the shown snapshot stays as it was at this time.
struct Pause {
    at: Timestamp,
    /// The snapshot that is shown afterwards.
    newest: Option<AnnotatedSnapshot>,
}

enum Destination {
    /// A terminal. It is taken over with the first frame, so that earlier errors appear on the
    /// original screen.
    Terminal(Option<Screen>),
    /// Anything else, or documents.
    Stream(Header),
}

impl<'a> FrameOutput<'a> {
    /// A frame output on stdout.
    pub(super) fn for_stdout(wanted: &'a ListRequest, settings: &Settings) -> Self {
        let destination = if wanted.format == Format::Table && is_stdout_screen() {
            Destination::Terminal(None)
        } else {
            Destination::Stream(Header::First)
        };
        Self {
            wanted,
            style: OutputStyle::for_stdout(settings),
            messages: settings.messages(),
            destination,
            annotated: None,
            away: None,
            pause: None,
        }
    }

    /// Whether frames are drawn on a terminal.
    pub(super) fn has_terminal(&self) -> bool {
        matches!(self.destination, Destination::Terminal(_))
    }

    /// Whether the terminal has been taken over.
    pub(super) fn is_screen(&self) -> bool {
        matches!(self.destination, Destination::Terminal(Some(_)))
    }

    pub(super) fn show_update(&mut self, update: Update) -> Result<(), Error> {
        match update {
            Update::Snapshot(annotated) => {
                self.away = None;
                self.show_snapshot(*annotated)
            }
            Update::Unchanged => {
                self.away = None;
                self.redraw()
            }
            Update::Away(failure, left) => {
                if self.away.is_none() && !self.is_screen() {
                    let seconds = left.as_secs();
                    self.messages
                        .warn(&format!("{failure}: trying again for {seconds} s"));
                }
                self.away = Some((failure, left));
                self.redraw()
            }
        }
    }

    fn show_snapshot(&mut self, annotated: AnnotatedSnapshot) -> Result<(), Error> {
        let AnnotatedSnapshot {
            snapshot,
            guard,
            suspected,
        } = annotated;
        let is_first = self.annotated.is_none();
        // Only the first frame reports missing users; later frames do not repeat it.
        let unknown_user = |user: &str| match is_first {
            true => user_lookup::unknown_user(user),
            false => None,
        };
        let SelectedSnapshot { snapshot, verdict } = self.wanted.select(snapshot, &unknown_user);
        // A device that never existed is a mistake in the arguments. A device that existed a
        // moment ago may come back.
        let verdict = match verdict {
            Some(failure @ Error::NoSuchDevice(_)) if is_first => return Err(failure),
            verdict => verdict,
        };
        let annotated = AnnotatedSnapshot {
            snapshot,
            guard,
            suspected,
        };
        if let Destination::Stream(header) = &mut self.destination {
            let text = match self.wanted.format {
                Format::Table => None,
                Format::Json | Format::Ndjson | Format::Csv => {
                    Some(render_document(&annotated, self.wanted, *header)?)
                }
            };
            *header = Header::Printed;
            match text {
                Some(text) => print(&text)?,
                None => {
                    let mut lines = view::lines(&annotated, &self.wanted.view, now(), &self.style);
                    lines.push(Line::default());
                    print_lines(&lines, &self.style)?;
                }
            }
            if let (true, Some(failure)) = (is_first, verdict) {
                self.messages.warn(&failure.to_string());
            }
        }
        match &mut self.pause {
            Some(pause) => pause.newest = Some(annotated),
            None => self.annotated = Some(annotated),
        }
        if let Destination::Terminal(screen @ None) = &mut self.destination {
            *screen = Some(Screen::enter()?);
        }
        self.redraw()
    }

    /// Draws the current snapshot again on a terminal. A stream already has it.
    pub(super) fn redraw(&mut self) -> Result<(), Error> {
        let (Destination::Terminal(Some(screen)), Some(annotated)) =
            (&mut self.destination, &self.annotated)
        else {
            return Ok(());
        };
        let (flow, at) = match &self.pause {
            Some(pause) => (FrameFlow::Paused, pause.at),
            None => (FrameFlow::Live, now()),
        };
        screen.show(&self.style, flow, |style| {
            let mut lines = Vec::new();
            if let Some((failure, left)) = &self.away {
                // A narrow terminal shows only the beginning.
                let text = format!("trying again for {} s: {failure}", left.as_secs());
                lines.push(Line::with_tone(escaped(&text, style.symbols), Tone::Broken));
            }
            lines.extend(view::lines(annotated, &self.wanted.view, at, style));
            lines
        })
    }

    /// Does what the keys typed since the last call say.
    ///
    /// # Errors
    /// The person quits, or the terminal cannot be written to.
    pub(super) fn handle_keys(&mut self) -> Result<(), Error> {
        let keys = read_keys();
        for key in &keys {
            match (key, &mut self.destination) {
                // As for a reader that is gone.
                (Key::Quit, _) => return Err(Error::ReaderGone),
                (Key::Pause, _) => self.toggle_pause(),
                (Key::Scroll(by), Destination::Terminal(Some(screen))) => screen.scroll(*by),
                (Key::Scroll(_), Destination::Terminal(None) | Destination::Stream(_)) => {}
            }
        }
        match keys.is_empty() {
            true => Ok(()),
            false => self.redraw(),
        }
    }

    fn toggle_pause(&mut self) {
        match self.pause.take() {
            Some(Pause { newest, .. }) => self.annotated = newest.or(self.annotated.take()),
            None => {
                self.pause = Some(Pause {
                    at: now(),
                    newest: None,
                });
            }
        }
    }

    /// Gives the terminal back, stops the process, and takes the terminal again on resume.
    pub(super) fn suspend(&mut self) -> Result<(), Error> {
        let screen = match &self.destination {
            Destination::Terminal(screen) => screen.as_ref(),
            Destination::Stream(_) => None,
        };
        screen.map_or(Ok(()), Screen::suspend)?;
        kill_process(getpid(), Signal::STOP).map_err(|error| Error::System(error.into()))?;
        screen.map_or(Ok(()), Screen::resume)?;
        self.redraw()
    }
}
