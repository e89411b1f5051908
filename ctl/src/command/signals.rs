//! Signals that a wait handles instead of ending or stopping the program.

use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that are handled from now on, until the program ends.
pub(super) struct Signals {
    /// Each signal writes a byte to it.
    reader: UnixStream,
    writer: UnixStream,
    /// The signal numbers, each with a flag that the signal sets.
    flags: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    /// Starts handling these signals.
    pub(super) fn listen(signals: &[i32]) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let mut listening = Self {
            reader,
            writer,
            flags: Vec::new(),
        };
        for signal in signals {
            listening.add(*signal)?;
        }
        Ok(listening)
    }

    /// Handles one more signal.
    pub(super) fn add(&mut self, signal: i32) -> io::Result<()> {
        if self.flags.iter().any(|(known, _)| *known == signal) {
            return Ok(());
        }
        let received = Arc::new(AtomicBool::new(false));
        // In this order, because a byte announces a flag that is already set.
        flag::register(signal, Arc::clone(&received))?;
        pipe::register(signal, self.writer.try_clone()?)?;
        self.flags.push((signal, received));
        Ok(())
    }

    /// A descriptor that is readable after a signal.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The signals since the last call, in the order of registration.
    pub(super) fn take_received(&mut self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while self.reader.read(&mut bytes).is_ok_and(|length| length > 0) {}
        let received = self.flags.iter();
        let received = received.filter(|(_, received)| received.swap(false, Ordering::SeqCst));
        received.map(|(signal, _)| *signal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGWINCH;

    #[test]
    fn signal_is_reported_once() {
        let mut signals = Signals::listen(&[SIGWINCH, SIGWINCH]).unwrap();
        assert!(signals.take_received().is_empty());
        signal_hook::low_level::raise(SIGWINCH).unwrap();
        assert_eq!(signals.take_received(), [SIGWINCH]);
        assert!(signals.take_received().is_empty());
    }
}
