//! A child process that owns the vendor's library and nothing else.
//!
//! NVML is closed code that can hang or crash. It runs in `gpukill-sensor`, a program of
//! its own: it is small, so that the library is most of what the process has in memory. It
//! gives up every capability and answers over a socket pair. This side spawns it, asks it,
//! bounds its answers and ends it.

pub(crate) mod child;

pub(crate) mod confine;

mod message;

mod nvml;

mod program;

use crate::backend::Readings;
use gpukill_proto::snapshot::GpuEvent;
use gpukill_proto::text::visible;
use message::Request;
pub(crate) use program::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::de::DeserializeOwned;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs as the sensor; `arguments` are those of the process: its name, the version of the
/// daemon that starts it, and the NVML library. Standard input is the socket pair.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match child::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The daemon reads it. Nobody else can be told.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// A sensor that is too slow, as in "the sensor …".
pub(crate) const NO_ANSWER: &str = "did not answer in time";

/// A running sensor.
pub(crate) struct Sensor {
    child: Child,
    socket: UnixStream,
    /// Its standard error. In the journal, lines of a library would be the daemon's, and
    /// `<0>` before one would have it shown on every terminal.
    complaints: File,
    /// The last line of it, once it has ended.
    complaint: Option<String>,
    answered: bool,
    /// At which device its last poll failed.
    failed_at: Option<u32>,
    /// What it has answered so far of a poll that nothing waits for.
    answer: Answer,
}

/// The answer to a poll, as far as it has come.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    /// The first of its two messages is there.
    has_events: bool,
}

/// The sensor could not be started.
pub(crate) struct SpawnError(pub(crate) io::Error);

/// How long a sensor may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a whole poll.
    pub(crate) whole: Duration,
    /// For one device.
    pub(crate) each: Duration,
}

/// How often it is looked whether a slow sensor gets on.
const STEP: Duration = Duration::from_secs(1);

/// How long an answer may take from its first byte to its last.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How long a sensor that was killed or crashed may take to be gone. One that
/// was killed and is not counts as stuck.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// So much of what a sensor complained of last is logged, in bytes.
const COMPLAINTS_MAX: usize = 2048;

/// As much as a pipe holds, unless somebody set another size (pipe(7)).
const PIPE: u64 = 64 << 10;

/// So much of its last line is part of the fault.
const COMPLAINT_MAX: usize = 160;

/// What a sensor's name begins with while it reads a device, whose index
/// follows. The kernel keeps the name of a process that hangs or has crashed.
const AT_DEVICE: &str = "sensor gpu ";

/// Says which device this sensor reads now; also for whoever looks at `top`.
fn say_where(device: Option<u32>) {
    let name = match device {
        Some(index) => CString::new(format!("{AT_DEVICE}{index}")),
        None => CString::new("gpukilld-sensor"),
    };
    // A sensor without a name is one of which less is known.
    let _ = name.map(|name| rustix::thread::set_name(&name));
}

impl Sensor {
    /// Starts the program as a sensor over `library`.
    pub(crate) fn spawn(program: &mut Program, library: &str) -> Result<Self, SpawnError> {
        Self::try_spawn("gpukilld-sensor", program, library).map_err(SpawnError)
    }

    /// The same, under a name that says that it is to try one device.
    pub(crate) fn spawn_for_one(program: &mut Program, library: &str) -> Result<Self, SpawnError> {
        Self::try_spawn("gpukilld-retry", program, library).map_err(SpawnError)
    }

    fn try_spawn(name: &str, program: &mut Program, library: &str) -> io::Result<Self> {
        let mut command = program.command()?;
        command
            .arg0(name)
            .args([env!("CARGO_PKG_VERSION"), library]);
        Self::start(command)
    }

    fn start(mut program: Command) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // Nobody reads it before the end: what does not fit is lost, and blocks nobody.
        let (complaints, complains) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let child = program
            // Nothing in it speaks for the daemon.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::from(complains))
            // Whoever its library starts stays in it, and ends with it.
            .process_group(0)
            .spawn()?;
        tracing::debug!(pid = child.id(), "sensor started");
        Ok(Self {
            child,
            socket: ours,
            complaints: File::from(complaints),
            complaint: None,
            answered: false,
            failed_at: None,
            answer: Answer::default(),
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

    /// The index of the device at which its last poll failed.
    pub(crate) fn failed_at(&self) -> Option<u32> {
        self.failed_at
    }

    /// The index of the device that it reads now, or read when it ended and is
    /// not reaped yet.
    fn place(&self) -> Option<u32> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid())).ok()?;
        name.trim_end().strip_prefix(AT_DEVICE)?.parse().ok()
    }

    /// Asks for one poll, without the devices at these indices, and waits for nothing;
    /// [`Self::try_read`] has its answer.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) fn ask(&mut self, leave_out: &[u32]) -> Result<(), String> {
        let request = Request::Poll(leave_out.to_vec());
        let deadline = Instant::now() + STEP;
        let asked = message::send(&mut self.socket, &request, deadline);
        let ready = asked.and_then(|()| self.socket.set_nonblocking(true));
        ready.map_err(|error| self.explain(&error))
    }

    /// The readings of the poll that was asked for, if they are there by now.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) fn try_read(&mut self) -> Result<Option<Readings>, String> {
        let answer = self.receive_more();
        answer.map_err(|error| self.explain(&error))
    }

    fn receive_more(&mut self) -> io::Result<Option<Readings>> {
        let Answer { bytes, has_events } = &mut self.answer;
        let mut part = [0; 4096];
        loop {
            if !*has_events {
                *has_events = message::take::<Vec<GpuEvent>>(bytes)?.is_some();
            }
            if *has_events && let Some(readings) = message::take(bytes)? {
                return Ok(Some(readings));
            }
            match self.socket.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => bytes.extend_from_slice(part.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks for one poll, without the devices at these indices, and waits for
    /// what happened since the last one. [`Self::read`] must follow.
    ///
    /// # Errors
    /// Why there is none, as in "the sensor …". It must be ended then.
    pub(crate) fn hear(
        &mut self,
        leave_out: &[u32],
        patience: Patience,
    ) -> Result<Vec<GpuEvent>, String> {
        let request = Request::Poll(leave_out.to_vec());
        let began = Instant::now();
        message::send(&mut self.socket, &request, began + patience.whole)
            .map_err(|error| self.explain(&error))?;
        self.receive(patience)
    }

    /// Waits for the readings of the poll that was asked for.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) fn read(&mut self, patience: Patience) -> Result<Readings, String> {
        let readings = self.receive(patience)?;
        self.answered = true;
        Ok(readings)
    }

    fn receive<T: DeserializeOwned>(&mut self, patience: Patience) -> Result<T, String> {
        let began = Instant::now();
        let deadline = began + patience.whole + ANSWER_PATIENCE;
        self.wait(began, patience)
            .and_then(|()| message::receive(&mut self.socket, deadline))
            .map_err(|error| self.explain(&error))
    }

    /// Waits until the answer begins, while the sensor gets on.
    fn wait(&self, began: Instant, patience: Patience) -> io::Result<()> {
        let mut at = (None, began);
        let step = Timespec::try_from(STEP).map_err(io::Error::other)?;
        loop {
            let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut sockets, Some(&step)) {
                // Whoever its library started may have the other end of the socket too.
                Ok(0) if self.is_over() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            let place = self.place();
            if place != at.0 {
                at = (place, now);
            }
            let stays = place.is_some() && now.duration_since(at.1) >= patience.each;
            if stays || now.duration_since(began) >= patience.whole {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn explain(&mut self, error: &io::Error) -> String {
        self.failed_at = self.place();
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => NO_ANSWER.to_owned(),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => match self.last_words() {
                Some(status) => match self.complaint.take_if(|_| status.code().is_some()) {
                    Some(why) => format!("ended unexpectedly ({status}): {why}"),
                    None => format!("ended unexpectedly ({status})"),
                },
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
            match self.reap() {
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Kills it, and does not wait for its end.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// Kills it and waits; false when it is still there, stuck in the kernel.
    #[must_use]
    pub(crate) fn end(&mut self) -> bool {
        self.kill();
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
        matches!(self.reap(), Ok(Some(_)))
    }

    /// How it ended, once it has.
    fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(pid) = self.number().filter(|_| self.is_over()) {
            // Its number is nobody else's while nobody has waited for it.
            let _ = kill_process_group(pid, Signal::KILL);
            self.tell_complaints();
        }
        self.child.try_wait()
    }

    /// Whether it has ended and nobody has waited for it.
    fn is_over(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.number()
            .is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), look), Ok(Some(_))))
    }

    fn number(&self) -> Option<Pid> {
        i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
    }

    fn tell_complaints(&mut self) {
        let mut bytes = Vec::new();
        // That there is no more is an error where somebody else has the pipe still.
        let _ = (&self.complaints).take(PIPE).read_to_end(&mut bytes);
        let said = bytes.trim_ascii();
        if said.is_empty() {
            return;
        }
        let last = said.rsplit(|byte| *byte == b'\n').next();
        self.complaint = last.map(|last| visible(last, COMPLAINT_MAX));
        let from = said.len().saturating_sub(COMPLAINTS_MAX);
        let said = visible(said.get(from..).unwrap_or_default(), COMPLAINTS_MAX);
        tracing::warn!(pid = self.pid(), "the sensor said: {said}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a sensor that is this script of the shell's failed, and how it was left.
    fn of(script: &str) -> (Sensor, String) {
        let mut shell = Command::new("sh");
        // What it starts in the background has no other input than descriptor 3.
        shell.args(["-c", &format!("exec 3<&0; {script}")]);
        let mut sensor = Sensor::start(shell).unwrap();
        let patience = Patience {
            whole: MINUTE,
            each: MINUTE,
        };
        let why = sensor.hear(&[], patience).unwrap_err();
        (sensor, why)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_sensor_that_ended_is_not_waited_for_while_whom_it_left_has_its_socket() {
        let (mut sensor, why) = of("sleep 1000 & seq 9999 >&2; echo why >&2; exit 7");
        assert_eq!(why, "ended unexpectedly (exit status: 7): why");
        // With its group, which was the only other one, the socket has gone.
        sensor.socket.set_read_timeout(Some(MINUTE)).unwrap();
        match sensor.socket.read(&mut [0; 1]) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
            Ok(read) => assert_eq!(read, 0),
        }
    }

    #[test]
    fn a_sensor_that_complains_without_end_is_not_kept_waiting() {
        let (_, why) = of("yes | head -c 1000000 >&2; exit 7");
        let (how, said) = why.split_at("ended unexpectedly (exit status: 7): ".len());
        assert_eq!(how, "ended unexpectedly (exit status: 7): ");
        assert!(!said.is_empty() && said.len() <= COMPLAINT_MAX, "{said}");
    }
}
