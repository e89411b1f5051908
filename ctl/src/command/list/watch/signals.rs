//! The signals that a watch answers.

use rustix::process::Signal as Number;
use std::future::pending;
use std::io;
use tokio::signal::unix::{self, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// End: Ctrl-C, SIGTERM, SIGHUP.
    Stop,
    /// Stop for a while: Ctrl-Z.
    Suspend,
    /// The terminal has another size, or was somebody else's for a while.
    Redraw,
}

/// The signals that a watch answers.
pub(super) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    resize: unix::Signal,
    resume: unix::Signal,
    /// Only a screen must be left before a stop; without one the kernel's way
    /// is right, and listening would turn it off.
    stop: Option<unix::Signal>,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            resize: signal(SignalKind::window_change())?,
            resume: signal(SignalKind::from_raw(Number::CONT.as_raw()))?,
            stop: None,
        })
    }

    /// Listens to Ctrl-Z too.
    pub(super) fn hear_suspend(&mut self) -> io::Result<()> {
        if self.stop.is_none() {
            self.stop = Some(signal(SignalKind::from_raw(Number::TSTP.as_raw()))?);
        }
        Ok(())
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Signal {
        let stop = async {
            match &mut self.stop {
                Some(stop) => stop.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Stop,
            _ = stop => Signal::Suspend,
            _ = self.resize.recv() => Signal::Redraw,
            _ = self.resume.recv() => Signal::Redraw,
        }
    }
}
