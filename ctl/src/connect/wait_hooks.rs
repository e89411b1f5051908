//! Waits for an answer while handling signals and noting a long wait.

use crate::exit::Error;
use gpukill_proto::transport::Readiness;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Hooks that run during a wait.
pub(crate) trait WaitHooks {
    /// Descriptors of which one is readable when [`on_wake`](Self::on_wake) has to run.
    fn wake_fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None, None]
    }

    /// Handles the event.
    ///
    /// # Errors
    /// Ends the wait.
    fn on_wake(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// An output with a reader: the wait ends when the reader is gone, as `head` is after the
    /// first lines.
    fn output_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Silence before [`on_long_wait`](Self::on_long_wait) runs.
    fn long_wait_after(&self) -> Option<Duration> {
        None
    }

    /// Runs after that silence.
    fn on_long_wait(&mut self) {}
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitResult {
    /// The stream is ready.
    Ready,
    /// The deadline passed.
    TimedOut,
}

/// Waits until the stream is ready, or until a time when there is no stream. A ready stream
/// comes before a hook, because an answer is worth more than a quick exit.
///
/// # Errors
/// The error of [`WaitHooks::on_wake`], or the kernel's error.
pub(super) fn wait(
    stream: Option<(&UnixStream, Readiness)>,
    until: Instant,
    hooks: &mut dyn WaitHooks,
) -> Result<WaitResult, Error> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && stream.is_none() {
            return Ok(WaitResult::TimedOut);
        }
        let quiet = hooks.long_wait_after().filter(|quiet| *quiet < left);
        let longest = quiet.unwrap_or(left);
        let [is_ready, is_woken, is_reader_gone] = poll_ready(stream, hooks, longest)?;
        if is_reader_gone {
            return Err(Error::ReaderGone);
        }
        if is_ready {
            return Ok(WaitResult::Ready);
        }
        if is_woken {
            hooks.on_wake()?;
        } else if left.is_zero() {
            return Ok(WaitResult::TimedOut);
        } else if quiet.is_some() {
            hooks.on_long_wait();
        }
    }
}

/// Sleeps for this long.
///
/// # Errors
/// The error of [`WaitHooks::on_wake`], or the kernel's error.
pub(crate) fn sleep(length: Duration, hooks: &mut dyn WaitHooks) -> Result<(), Error> {
    wait(None, Instant::now() + length, hooks).map(drop)
}

/// Whether the stream is ready, a hook has to run, and the reader of the output is gone, after
/// at most `longest`.
fn poll_ready(
    stream: Option<(&UnixStream, Readiness)>,
    hooks: &dyn WaitHooks,
    longest: Duration,
) -> Result<[bool; 3], Error> {
    let stream = stream.map(|(stream, until)| {
        let flags = match until {
            Readiness::Readable => PollFlags::IN,
            Readiness::Writable => PollFlags::OUT,
        };
        (stream.as_fd(), flags)
    });
    let wakes = hooks.wake_fds();
    let [signals, keys] = wakes.map(|wakes| wakes.map(|wakes| (wakes, PollFlags::IN)));
    // The kernel reports an error on a pipe without a reader even if nothing is requested.
    let output = hooks.output_fd().map(|output| (output, PollFlags::empty()));
    let all = [stream, signals, keys, output];
    let mut descriptors = Vec::with_capacity(all.len());
    for (descriptor, flags) in all.iter().flatten() {
        descriptors.push(PollFd::from_borrowed_fd(*descriptor, *flags));
    }
    let longest = Timespec::try_from(longest).ok();
    match poll(&mut descriptors, longest.as_ref()) {
        Ok(_) => {}
        // A signal arrived; its descriptor becomes readable.
        Err(rustix::io::Errno::INTR) => return Ok([false; 3]),
        Err(error) => return Err(Error::System(io::Error::from(error))),
    }
    let mut ready = descriptors.iter().map(|it| !it.revents().is_empty());
    let is_ready = all.map(|requested| requested.is_some() && ready.next() == Some(true));
    let [stream, signals, keys, output] = is_ready;
    Ok([stream, signals || keys, output])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    struct CountingHooks {
        wakes: UnixStream,
        woken: u32,
        noted: u32,
    }

    impl WaitHooks for CountingHooks {
        fn wake_fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
            [None, Some(self.wakes.as_fd())]
        }

        fn on_wake(&mut self) -> Result<(), Error> {
            self.woken += 1;
            Err(Error::ReaderGone)
        }

        fn long_wait_after(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }

        fn on_long_wait(&mut self) {
            self.noted += 1;
        }
    }

    #[test]
    fn answer_comes_before_hooks() {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        let (wakes, mut waker) = UnixStream::pair().unwrap();
        let mut counting = CountingHooks {
            wakes,
            woken: 0,
            noted: 0,
        };
        let readable = Some((&stream, Readiness::Readable));
        let soon = || Instant::now() + Duration::from_millis(50);
        assert!(matches!(
            wait(readable, soon(), &mut counting),
            Ok(WaitResult::TimedOut)
        ));
        assert!(matches!(
            wait(None, soon(), &mut counting),
            Ok(WaitResult::TimedOut)
        ));
        assert!(counting.noted > 0);
        waker.write_all(b"x").unwrap();
        let woken = wait(readable, soon(), &mut counting);
        assert!(matches!(woken, Err(Error::ReaderGone)));
        peer.write_all(b"x").unwrap();
        assert!(matches!(
            wait(readable, soon(), &mut counting),
            Ok(WaitResult::Ready)
        ));
        assert_eq!(counting.woken, 1);
        let writable = Some((&stream, Readiness::Writable));
        let past = Instant::now();
        assert!(matches!(
            wait(writable, past, &mut counting),
            Ok(WaitResult::Ready)
        ));
    }

    struct OutputHooks(io::PipeWriter);

    impl WaitHooks for OutputHooks {
        fn output_fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }

    #[test]
    fn wait_ends_when_the_reader_is_gone() {
        let (reader, writer) = io::pipe().unwrap();
        let mut hooks = OutputHooks(writer);
        let short = Duration::from_millis(1);
        assert!(sleep(short, &mut hooks).is_ok());
        drop(reader);
        let long = Duration::from_secs(3600);
        assert!(matches!(sleep(long, &mut hooks), Err(Error::ReaderGone)));
    }
}
