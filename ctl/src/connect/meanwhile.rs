//! What is done while an answer is awaited: signals are heeded, and a long wait is noted.

use crate::exit::Failure;
use gpukill_proto::transport::Until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What is done while an answer is awaited.
pub(crate) trait Meanwhile {
    /// A descriptor that can be read when there is something to heed.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Heeds it.
    ///
    /// # Errors
    /// A failure ends the wait.
    fn heed(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// How long nothing happens before [`note`](Self::note).
    fn quiet(&self) -> Option<Duration> {
        None
    }

    /// Nothing happened for a while.
    fn note(&mut self) {}
}

/// Nothing: a signal ends the program, as it does by default.
pub(crate) struct Nothing;

impl Meanwhile for Nothing {}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// The stream is ready.
    Ready,
    /// The time is over.
    Over,
}

/// Waits for a stream, or for a time where there is none. A stream that is ready comes before
/// what else is to be heeded: an answer that is there is worth more than being quick to
/// leave.
///
/// # Errors
/// What [`Meanwhile::heed`] gives; the kernel's word where it cannot wait.
pub(super) fn wait(
    stream: Option<(&UnixStream, Until)>,
    until: Instant,
    meanwhile: &mut dyn Meanwhile,
) -> Result<Waited, Failure> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && stream.is_none() {
            return Ok(Waited::Over);
        }
        let quiet = meanwhile.quiet().filter(|quiet| *quiet < left);
        let longest = quiet.unwrap_or(left);
        let [is_ready, is_woken] = ready(stream, meanwhile.wakes(), longest)?;
        if is_ready {
            return Ok(Waited::Ready);
        }
        if is_woken {
            meanwhile.heed()?;
        } else if left.is_zero() {
            return Ok(Waited::Over);
        } else if quiet.is_some() {
            meanwhile.note();
        }
    }
}

/// Waits for so long.
///
/// # Errors
/// What [`Meanwhile::heed`] gives; the kernel's word where it cannot wait.
pub(crate) fn sleep(length: Duration, meanwhile: &mut dyn Meanwhile) -> Result<(), Failure> {
    wait(None, Instant::now() + length, meanwhile).map(drop)
}

/// Which of the two are ready, after so long at most.
fn ready(
    stream: Option<(&UnixStream, Until)>,
    wakes: Option<BorrowedFd<'_>>,
    longest: Duration,
) -> Result<[bool; 2], Failure> {
    let mut descriptors = Vec::with_capacity(2);
    if let Some((stream, until)) = &stream {
        let flags = match until {
            Until::Readable => PollFlags::IN,
            Until::Writable => PollFlags::OUT,
        };
        descriptors.push(PollFd::from_borrowed_fd(stream.as_fd(), flags));
    }
    if let Some(wakes) = wakes {
        descriptors.push(PollFd::from_borrowed_fd(wakes, PollFlags::IN));
    }
    let longest = Timespec::try_from(longest).ok();
    match poll(&mut descriptors, longest.as_ref()) {
        Ok(_) => {}
        // A signal: the descriptor to heed tells of it.
        Err(rustix::io::Errno::INTR) => return Ok([false, false]),
        Err(error) => return Err(Failure::System(io::Error::from(error))),
    }
    let mut ready = descriptors.iter().map(|it| !it.revents().is_empty());
    let is_ready = stream.is_some() && ready.next() == Some(true);
    Ok([is_ready, ready.next() == Some(true)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    struct Counting {
        wakes: UnixStream,
        heeded: u32,
        noted: u32,
    }

    impl Meanwhile for Counting {
        fn wakes(&self) -> Option<BorrowedFd<'_>> {
            Some(self.wakes.as_fd())
        }

        fn heed(&mut self) -> Result<(), Failure> {
            self.heeded += 1;
            Err(Failure::ReaderGone)
        }

        fn quiet(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }

        fn note(&mut self) {
            self.noted += 1;
        }
    }

    #[test]
    fn an_answer_comes_first_then_what_is_to_be_heeded_and_a_long_wait_is_noted() {
        let (stream, mut theirs) = UnixStream::pair().unwrap();
        let (wakes, mut waker) = UnixStream::pair().unwrap();
        let mut counting = Counting {
            wakes,
            heeded: 0,
            noted: 0,
        };
        let readable = Some((&stream, Until::Readable));
        let soon = || Instant::now() + Duration::from_millis(50);
        assert!(matches!(
            wait(readable, soon(), &mut counting),
            Ok(Waited::Over)
        ));
        assert!(matches!(
            wait(None, soon(), &mut counting),
            Ok(Waited::Over)
        ));
        assert!(counting.noted > 0);
        waker.write_all(b"x").unwrap();
        let heeded = wait(readable, soon(), &mut counting);
        assert!(matches!(heeded, Err(Failure::ReaderGone)));
        theirs.write_all(b"x").unwrap();
        assert!(matches!(
            wait(readable, soon(), &mut counting),
            Ok(Waited::Ready)
        ));
        assert_eq!(counting.heeded, 1);
        let writable = Some((&stream, Until::Writable));
        let past = Instant::now();
        assert!(matches!(
            wait(writable, past, &mut counting),
            Ok(Waited::Ready)
        ));
    }
}
