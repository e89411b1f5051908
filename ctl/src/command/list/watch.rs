//! `list --watch`: draws a frame for each new snapshot until a signal or a key ends it.

mod feed;
mod frame_output;

use super::ListRequest;
use crate::command::signals::Signals;
use crate::connect::{WaitHooks, choose_socket};
use crate::exit::{Error, Exit};
use crate::output::list::keyboard;
use crate::output::stdout_file;
use crate::settings::Settings;
use feed::SnapshotFeed;
use frame_output::FrameOutput;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use std::fs::File;
use std::io::{self, Stdin};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Draws frames until a signal or a key ends the watch.
pub(super) fn run(wanted: &ListRequest, settings: &Settings) -> Result<Exit, Error> {
    let frames = FrameOutput::for_stdout(wanted, settings);
    let mut hooks = WatchHooks::new(frames).map_err(Error::System)?;
    let socket = choose_socket(settings.socket.as_deref())?;
    let mut feed = SnapshotFeed::new(socket, settings);
    loop {
        let update = feed.next_update(&mut hooks)?;
        hooks.frames.show_update(update)?;
    }
}

/// A frame output, and the signals and keys that act on it.
struct WatchHooks<'a> {
    frames: FrameOutput<'a>,
    signals: Signals,
    stdin: Stdin,
    output: File,
}

impl<'a> WatchHooks<'a> {
    /// Listens for signals from now on. Ctrl-C, Ctrl-\, SIGTERM and SIGHUP end the watch; it is
    /// redrawn when the terminal is resized or the process continues.
    fn new(frames: FrameOutput<'a>) -> io::Result<Self> {
        let ends = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];
        let mut signals = Signals::listen(&[&ends[..], &[SIGWINCH, SIGCONT]].concat())?;
        if frames.has_terminal() {
            // Before the first frame, because a full screen has to be left before Ctrl-Z stops
            // the process. Elsewhere the kernel's default is right.
            signals.add(SIGTSTP)?;
        }
        Ok(Self {
            frames,
            signals,
            stdin: io::stdin(),
            output: stdout_file()?,
        })
    }
}

impl WaitHooks for WatchHooks<'_> {
    fn wake_fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let keys = keyboard::is_taken().then(|| self.stdin.as_fd());
        [Some(self.signals.wake_fd()), keys]
    }

    fn output_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.output.as_fd())
    }

    fn on_wake(&mut self) -> Result<(), Error> {
        for signal in self.signals.take_received() {
            match signal {
                SIGTSTP => self.frames.suspend()?,
                SIGWINCH | SIGCONT => self.frames.redraw()?,
                // As for a reader that is gone.
                _ => return Err(Error::ReaderGone),
            }
        }
        self.frames.handle_keys()
    }
}
