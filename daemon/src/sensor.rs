//! A child process that owns the vendor's library and nothing else.
//!
//! NVML is closed code that can hang or crash. It runs in this same program,
//! started again without a single capability, and answers over a socket pair.
//! This side spawns it, asks it, bounds its answers and ends it.

pub(crate) mod child;

mod message;

mod nvml;

use crate::backend::Readings;
use message::Request;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running sensor.
pub(crate) struct Sensor {
    child: Child,
    socket: UnixStream,
    answered: bool,
}

/// The sensor could not be started.
pub(crate) struct SpawnError(pub(crate) io::Error);

/// How long a sensor that was killed or crashed may take to be gone. One that
/// was killed and is not counts as stuck.
const END_PATIENCE: Duration = Duration::from_secs(2);

impl Sensor {
    /// Starts this program again as a sensor over `library`.
    pub(crate) fn spawn(library: &str) -> Result<Self, SpawnError> {
        Self::try_spawn(library).map_err(SpawnError)
    }

    fn try_spawn(library: &str) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // The link is the running program itself, even when an upgrade has
        // replaced its file: parent and child always speak the same messages.
        let child = Command::new("/proc/self/exe")
            .arg0("gpukilld-sensor")
            .args(["--sensor", library])
            // Nothing in it speaks for the daemon.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        tracing::debug!(pid = child.id(), "sensor started");
        Ok(Self {
            child,
            socket: ours,
            answered: false,
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Asks for one poll and waits for its answer.
    ///
    /// # Errors
    /// Why there is none, as in "the sensor …". It must be ended then.
    pub(crate) fn poll(&mut self, patience: Duration) -> Result<Readings, String> {
        let deadline = Instant::now() + patience;
        let readings = message::send(&mut self.socket, &Request::Poll, deadline)
            .and_then(|()| message::receive(&mut self.socket, deadline))
            .map_err(|error| self.explain(&error, patience))?;
        self.answered = true;
        Ok(readings)
    }

    fn explain(&mut self, error: &io::Error, patience: Duration) -> String {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                format!("did not answer for {} s", patience.as_secs())
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => match self.last_words() {
                Some(status) => format!("ended unexpectedly ({status})"),
                None => "ended unexpectedly".to_owned(),
            },
            _ => format!("answered with garbage: {error}"),
        }
    }

    /// How it ended. The kernel closes the socket of a process that ends a
    /// moment before it tells how.
    fn last_words(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + END_PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Kills it and waits; false when it is still there, stuck in the kernel.
    #[must_use]
    pub(crate) fn end(&mut self) -> bool {
        // It may have ended by itself; then the wait below says so.
        let _ = self.child.kill();
        let deadline = Instant::now() + END_PATIENCE;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Whether it is gone and reaped.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}
