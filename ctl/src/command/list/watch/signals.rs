//! Handles signals while a watch waits for updates: redraw, stop or end.

use super::frame_output::FrameOutput;
use crate::command::signals::Signals;
use crate::connect::WaitHooks;
use crate::exit::Error;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use std::io;
use std::os::fd::BorrowedFd;

/// A frame output and the signals that act on it.
pub(super) struct WatchHooks<'a> {
    pub(super) sheet: FrameOutput<'a>,
    signals: Signals,
}

impl<'a> WatchHooks<'a> {
    /// Listens for signals from now on. Ctrl-C, SIGTERM and SIGHUP end the watch; it is redrawn
    /// when the terminal is resized or the process continues.
    pub(super) fn new(sheet: FrameOutput<'a>) -> io::Result<Self> {
        let signals = Signals::listen(&[SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT])?;
        Ok(Self { sheet, signals })
    }

    /// Handles Ctrl-Z too. Only a full screen has to be left before a stop. Otherwise the
    /// kernel's default is right, and a handler would turn it off.
    pub(super) fn handle_suspend(&mut self) -> io::Result<()> {
        self.signals.add(SIGTSTP)
    }
}

impl WaitHooks for WatchHooks<'_> {
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.signals.wake_fd())
    }

    fn on_wake(&mut self) -> Result<(), Error> {
        for signal in self.signals.take_received() {
            match signal {
                SIGTSTP => self.sheet.suspend()?,
                SIGWINCH | SIGCONT => self.sheet.redraw()?,
                // As for a reader that is gone.
                _ => return Err(Error::ReaderGone),
            }
        }
        Ok(())
    }
}
