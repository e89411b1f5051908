//! Where frames go: over each other on a terminal, else one after another.

use super::super::{Answer, Wanted, answer, document, now, person};
use super::feed::News;
use crate::connect::Sight;
use crate::exit::Failure;
use crate::output::csv::Header;
use crate::output::line::{Line, Tone, shown};
use crate::output::look::{Look, is_screen};
use crate::output::message::Messages;
use crate::output::screen::Screen;
use crate::output::{print, print_lines, view};
use crate::settings::{Format, Settings};
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;

/// Where frames go.
pub(super) struct Sheet<'a> {
    wanted: &'a Wanted,
    look: Look,
    messages: Messages,
    place: Place,
    /// What is shown now.
    sight: Option<Sight>,
    /// Why it may be old.
    away: Option<(Failure, Duration)>,
}

enum Place {
    /// A terminal; taken over with the first frame, so that what goes wrong
    /// before is read on the screen where it was asked.
    Terminal(Option<Screen>),
    /// Anything else, or documents.
    Stream(Header),
}

impl<'a> Sheet<'a> {
    /// Standard output.
    pub(super) fn of_stdout(wanted: &'a Wanted, settings: &Settings, messages: Messages) -> Self {
        let place = if wanted.format == Format::Table && is_screen() {
            Place::Terminal(None)
        } else {
            Place::Stream(Header::First)
        };
        Self {
            wanted,
            look: Look::of_stdout(settings),
            messages,
            place,
            sight: None,
            away: None,
        }
    }

    /// Whether it has taken a terminal over.
    pub(super) fn is_screen(&self) -> bool {
        matches!(self.place, Place::Terminal(Some(_)))
    }

    /// Shows news.
    pub(super) fn take(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Snapshot(sight) => {
                self.away = None;
                self.show(*sight)
            }
            News::Unchanged => {
                self.away = None;
                self.redraw()
            }
            News::Away(failure, left) => {
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

    fn show(&mut self, sight: Sight) -> Result<(), Failure> {
        let Sight {
            snapshot,
            guard,
            suspected,
        } = sight;
        let is_first = self.sight.is_none();
        // Frames go on whoever comes; only the first says what it lacks.
        let may_be = |user: &str| !is_first || person::may_be(user);
        let Answer { snapshot, verdict } = answer(snapshot, &self.wanted.selection, &may_be);
        // A device that never was is a mistake in the arguments; one that was
        // here a moment ago may come back.
        let verdict = match verdict {
            Some(failure @ Failure::NoSuchDevice(_)) if is_first => return Err(failure),
            verdict => verdict,
        };
        let sight = Sight {
            snapshot,
            guard,
            suspected,
        };
        if let Place::Stream(header) = &mut self.place {
            let text = match self.wanted.format {
                Format::Table => None,
                Format::Json | Format::Ndjson | Format::Csv => {
                    Some(document(&sight, self.wanted, *header)?)
                }
            };
            *header = Header::Printed;
            match text {
                Some(text) => print(&text)?,
                None => {
                    let mut lines = view::lines(&sight, &self.wanted.view, now(), &self.look);
                    lines.push(Line::default());
                    print_lines(&lines, &self.look)?;
                }
            }
            if let (true, Some(failure)) = (is_first, verdict) {
                self.messages.warn(&failure.to_string());
            }
        }
        self.sight = Some(sight);
        if let Place::Terminal(screen @ None) = &mut self.place {
            *screen = Some(Screen::enter()?);
        }
        self.redraw()
    }

    /// Draws what there is again; a stream has it already.
    pub(super) fn redraw(&self) -> Result<(), Failure> {
        let (Place::Terminal(Some(screen)), Some(sight)) = (&self.place, &self.sight) else {
            return Ok(());
        };
        screen.show(&self.look, |look| {
            let mut lines = Vec::new();
            if let Some((failure, left)) = &self.away {
                // The beginning is what a narrow terminal shows.
                let text = format!("trying again for {} s: {failure}", left.as_secs());
                lines.push(Line::toned(shown(&text, look.symbols), Tone::Broken));
            }
            lines.extend(view::lines(sight, &self.wanted.view, now(), look));
            lines
        })
    }

    /// Gives the terminal back, stops, and takes it again when it goes on.
    pub(super) fn suspend(&self) -> Result<(), Failure> {
        let Place::Terminal(Some(screen)) = &self.place else {
            return Ok(());
        };
        screen.suspend()?;
        kill_process(getpid(), Signal::STOP).map_err(|error| Failure::System(error.into()))?;
        screen.resume()?;
        self.redraw()
    }
}
