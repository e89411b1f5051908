//! What a watch does while it waits for news: it draws again, stops for a while, or ends.

use super::sheet::Sheet;
use crate::command::signals::Signals;
use crate::connect::Meanwhile;
use crate::exit::Failure;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use std::io;
use std::os::fd::BorrowedFd;

/// A sheet, and the signals that are answered on it.
pub(super) struct Answering<'a> {
    pub(super) sheet: Sheet<'a>,
    signals: Signals,
}

impl<'a> Answering<'a> {
    /// Answers from now on: Ctrl-C, SIGTERM and SIGHUP end; where the terminal has another
    /// size, or was somebody else's for a while, it is drawn again.
    pub(super) fn on(sheet: Sheet<'a>) -> io::Result<Self> {
        let signals = Signals::listen(&[SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT])?;
        Ok(Self { sheet, signals })
    }

    /// Answers Ctrl-Z too. Only a screen must be left before a stop; without one the kernel's
    /// way is right, and listening would turn it off.
    pub(super) fn hear_suspend(&mut self) -> io::Result<()> {
        self.signals.also(SIGTSTP)
    }
}

impl Meanwhile for Answering<'_> {
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.signals.wakes())
    }

    fn heed(&mut self) -> Result<(), Failure> {
        for signal in self.signals.take() {
            match signal {
                SIGTSTP => self.sheet.suspend()?,
                SIGWINCH | SIGCONT => self.sheet.redraw()?,
                // As where nobody reads any more.
                _ => return Err(Failure::ReaderGone),
            }
        }
        Ok(())
    }
}
