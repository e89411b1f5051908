//! Signals that a wait heeds, where by default they would end or stop the program.

use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that are heeded from now on, until the program ends.
pub(super) struct Signals {
    /// Each signal writes a byte to it.
    reader: UnixStream,
    writer: UnixStream,
    /// Their numbers, and which of them came.
    came: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    /// Heeds these.
    pub(super) fn listen(signals: &[i32]) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let mut listening = Self {
            reader,
            writer,
            came: Vec::new(),
        };
        for signal in signals {
            listening.also(*signal)?;
        }
        Ok(listening)
    }

    /// Heeds this one too.
    pub(super) fn also(&mut self, signal: i32) -> io::Result<()> {
        if self.came.iter().any(|(known, _)| *known == signal) {
            return Ok(());
        }
        let came = Arc::new(AtomicBool::new(false));
        // In this order: what is written tells of a flag that is set.
        flag::register(signal, Arc::clone(&came))?;
        pipe::register(signal, self.writer.try_clone()?)?;
        self.came.push((signal, came));
        Ok(())
    }

    /// Can be read when a signal came.
    pub(super) fn wakes(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Those that came since the last time, in the order in which they are listened to.
    pub(super) fn take(&mut self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while self.reader.read(&mut bytes).is_ok_and(|length| length > 0) {}
        let came = self.came.iter();
        let came = came.filter(|(_, came)| came.swap(false, Ordering::SeqCst));
        came.map(|(signal, _)| *signal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGWINCH;

    #[test]
    fn a_signal_is_heeded_once() {
        let mut signals = Signals::listen(&[SIGWINCH, SIGWINCH]).unwrap();
        assert!(signals.take().is_empty());
        signal_hook::low_level::raise(SIGWINCH).unwrap();
        assert_eq!(signals.take(), [SIGWINCH]);
        assert!(signals.take().is_empty());
    }
}
