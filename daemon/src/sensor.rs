//! The daemon's side of the sensor: a child process that owns the vendor's library and nothing
//! else.
//!
//! NVML is closed code that can hang or crash. It runs in `gpukill-sensor`, a program of its own,
//! which is small, so that the library is most of what the process has in memory. The sensor gives
//! up every capability and answers over a socket pair. This side spawns it, requests readings,
//! bounds its answers and ends it.

pub(crate) mod child;
pub(crate) mod confine;
mod message;
mod nvml;
mod program;

use crate::backend::BackendReadings;
use gpukill_proto::model::GpuEvent;
use gpukill_proto::text::sanitize;
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

/// Runs as the sensor. `arguments` are those of the process: its name, the version of the daemon
/// that starts it, and the NVML library. Standard input is the socket pair.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match child::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The daemon reads this. There is no other place to report it.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// The error text of a sensor that is too slow. It follows "the sensor".
pub(crate) const NO_ANSWER: &str = "did not answer in time";

/// A running sensor.
pub(crate) struct Sensor {
    child: Child,
    socket: UnixStream,
    /// Its standard error. If the library wrote to the journal itself, its lines would count as the
    /// daemon's, and a line that begins with `<0>` would appear on every terminal.
    stderr: File,
    /// The last line of its standard error, after its end.
    last_stderr_line: Option<String>,
    answered: bool,
    /// The device at which its last poll failed.
    failed_at: Option<u32>,
    /// The received part of an answer that nothing waits for.
    answer: PartialAnswer,
}

/// The received part of the answer to a poll.
#[derive(Default)]
struct PartialAnswer {
    bytes: Vec<u8>,
    /// The first of the two messages has arrived.
    has_events: bool,
}

/// The time limits of a sensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollLimits {
    pub(crate) poll: Duration,
    pub(crate) device: Duration,
}

/// How often to check whether a slow sensor makes progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How long an answer may take from its first byte to its last.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a killed or crashed sensor may take to exit. A killed sensor that takes longer counts
/// as stuck.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes at the end of a sensor's standard error that are logged.
const MAX_LOGGED_STDERR: usize = 2048;

/// The default capacity of a pipe (pipe(7)).
const PIPE_CAPACITY: u64 = 64 << 10;

/// Bytes of the last line that become part of the fault.
const MAX_STDERR_LINE: usize = 160;

/// The prefix of a sensor's process name while it reads a device; the index follows. The kernel
/// keeps the name of a process that hangs or has crashed.
const DEVICE_NAME_PREFIX: &str = "sensor gpu ";

/// Puts the device that this sensor reads into its process name, also for users of `top`.
fn set_process_name(device: Option<u32>) {
    let name = match device {
        Some(index) => CString::new(format!("{DEVICE_NAME_PREFIX}{index}")),
        None => CString::new("gpukilld-sensor"),
    };
    // Without the name only this diagnosis is missing.
    let _ = name.map(|name| rustix::thread::set_name(&name));
}

impl Sensor {
    /// Starts the program as a sensor for `library`, under this process name.
    ///
    /// # Errors
    /// When the program is not installed, or the system cannot start it.
    pub(crate) fn spawn(name: &str, program: &mut Program, library: &str) -> io::Result<Self> {
        let mut command = program.command()?;
        command
            .arg0(name)
            .args([env!("CARGO_PKG_VERSION"), library]);
        Self::start(command)
    }

    fn start(mut program: Command) -> io::Result<Self> {
        let (daemon_end, child_end) = UnixStream::pair()?;
        // It is read only after the end: output beyond its capacity is lost, and blocks no process.
        let (stderr_reader, stderr_writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let child = program
            // The sensor must not notify systemd in the daemon's name.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(OwnedFd::from(child_end)))
            .stdout(Stdio::null())
            .stderr(Stdio::from(stderr_writer))
            // Processes started by the library stay in this group, and end with it.
            .process_group(0)
            .spawn()?;
        tracing::debug!(pid = child.id(), "sensor started");
        Ok(Self {
            child,
            socket: daemon_end,
            stderr: File::from(stderr_reader),
            last_stderr_line: None,
            answered: false,
            failed_at: None,
            answer: PartialAnswer::default(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    pub(crate) fn failed_at(&self) -> Option<u32> {
        self.failed_at
    }

    /// The index of the device that the sensor reads now, or was reading when it ended, until it is
    /// reaped.
    fn current_device(&self) -> Option<u32> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid())).ok()?;
        name.trim_end()
            .strip_prefix(DEVICE_NAME_PREFIX)?
            .parse()
            .ok()
    }

    /// Requests one poll without the devices at these indices, and returns at once;
    /// [`Self::try_read`] returns the answer.
    ///
    /// # Errors
    /// As [`Self::poll_events`].
    pub(crate) fn request(&mut self, leave_out: &[u32]) -> Result<(), String> {
        let deadline = Instant::now() + PROGRESS_INTERVAL;
        let sent = message::send(&mut self.socket, &leave_out, deadline);
        let ready = sent.and_then(|()| self.socket.set_nonblocking(true));
        ready.map_err(|error| self.explain(&error))
    }

    /// The readings of the requested poll, if they have arrived.
    ///
    /// # Errors
    /// As [`Self::poll_events`].
    pub(crate) fn try_read(&mut self) -> Result<Option<BackendReadings>, String> {
        let answer = self.receive_more();
        answer.map_err(|error| self.explain(&error))
    }

    fn receive_more(&mut self) -> io::Result<Option<BackendReadings>> {
        let PartialAnswer { bytes, has_events } = &mut self.answer;
        let mut part = [0; 4096];
        loop {
            if !*has_events {
                *has_events = message::take_message::<Vec<GpuEvent>>(bytes)?.is_some();
            }
            if *has_events && let Some(readings) = message::take_message(bytes)? {
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

    /// Requests one poll without the devices at these indices, and waits for the events since the
    /// last one. [`Self::read`] must follow.
    ///
    /// # Errors
    /// The reason, which completes "the sensor …". The sensor must be ended then.
    pub(crate) fn poll_events(
        &mut self,
        leave_out: &[u32],
        limits: PollLimits,
    ) -> Result<Vec<GpuEvent>, String> {
        let start = Instant::now();
        message::send(&mut self.socket, &leave_out, start + limits.poll)
            .map_err(|error| self.explain(&error))?;
        self.receive(limits)
    }

    /// Waits for the readings of the requested poll.
    ///
    /// # Errors
    /// As [`Self::poll_events`].
    pub(crate) fn read(&mut self, limits: PollLimits) -> Result<BackendReadings, String> {
        let readings = self.receive(limits)?;
        self.answered = true;
        Ok(readings)
    }

    fn receive<T: DeserializeOwned>(&mut self, limits: PollLimits) -> Result<T, String> {
        let start = Instant::now();
        let deadline = start + limits.poll + ANSWER_TIMEOUT;
        self.wait(start, limits)
            .and_then(|()| message::receive(&mut self.socket, deadline))
            .map_err(|error| self.explain(&error))
    }

    /// Waits until the answer begins, as long as the sensor makes progress.
    fn wait(&self, start: Instant, limits: PollLimits) -> io::Result<()> {
        let mut at = (None, start);
        let step = Timespec::try_from(PROGRESS_INTERVAL).map_err(io::Error::other)?;
        loop {
            let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut sockets, Some(&step)) {
                // A process that the library started may have the other end of the socket too.
                Ok(0) if self.is_zombie() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            let device = self.current_device();
            if device != at.0 {
                at = (device, now);
            }
            let is_stuck = device.is_some() && now.duration_since(at.1) >= limits.device;
            if is_stuck || now.duration_since(start) >= limits.poll {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn explain(&mut self, error: &io::Error) -> String {
        self.failed_at = self.current_device();
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => NO_ANSWER.to_owned(),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => match self.wait_exit_status() {
                Some(status) => match self.last_stderr_line.take_if(|_| status.code().is_some()) {
                    Some(why) => format!("ended unexpectedly ({status}): {why}"),
                    None => format!("ended unexpectedly ({status})"),
                },
                None => "ended unexpectedly".to_owned(),
            },
            _ => format!("answered with garbage: {error}"),
        }
    }

    /// The exit status. The kernel closes the socket of an ending process a moment before its
    /// status is available.
    fn wait_exit_status(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + END_TIMEOUT;
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

    /// Kills the sensor without waiting for its end.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// Kills the sensor and waits; false if it is still there, stuck in the kernel.
    #[must_use]
    pub(crate) fn end(&mut self) -> bool {
        self.kill();
        let deadline = Instant::now() + END_TIMEOUT;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.reap(), Ok(Some(_)))
    }

    /// The exit status, after the end.
    fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(pid) = self.raw_pid().filter(|_| self.is_zombie()) {
            // The pid is not reused until the process is reaped.
            let _ = kill_process_group(pid, Signal::KILL);
            self.log_stderr();
        }
        self.child.try_wait()
    }

    /// Whether the sensor has ended and is not reaped yet.
    fn is_zombie(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.raw_pid()
            .is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
    }

    fn raw_pid(&self) -> Option<Pid> {
        i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
    }

    fn log_stderr(&mut self) {
        let mut bytes = Vec::new();
        // The end of the data is an error if another process still has the pipe open.
        let _ = (&self.stderr).take(PIPE_CAPACITY).read_to_end(&mut bytes);
        let stderr = bytes.trim_ascii();
        if stderr.is_empty() {
            return;
        }
        let last = stderr.rsplit(|byte| *byte == b'\n').next();
        self.last_stderr_line = last.map(|last| sanitize(last, MAX_STDERR_LINE));
        let from = stderr.len().saturating_sub(MAX_LOGGED_STDERR);
        let stderr = sanitize(stderr.get(from..).unwrap_or_default(), MAX_LOGGED_STDERR);
        tracing::warn!(pid = self.pid(), "sensor stderr: {stderr}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as the sensor; returns it with the reason of its failure.
    fn run_shell_sensor(script: &str) -> (Sensor, String) {
        let mut shell = Command::new("sh");
        // A background process of the script has no other access to the socket than descriptor 3.
        shell.args(["-c", &format!("exec 3<&0; {script}")]);
        let mut sensor = Sensor::start(shell).unwrap();
        let limits = PollLimits {
            poll: MINUTE,
            device: MINUTE,
        };
        let why = sensor.poll_events(&[], limits).unwrap_err();
        (sensor, why)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn ended_sensor_with_a_surviving_child() {
        let (mut sensor, why) = run_shell_sensor("sleep 1000 & seq 9999 >&2; echo why >&2; exit 7");
        assert_eq!(why, "ended unexpectedly (exit status: 7): why");
        // The group contained the only other holder, so the socket is closed now.
        sensor.socket.set_read_timeout(Some(MINUTE)).unwrap();
        match sensor.socket.read(&mut [0; 1]) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
            Ok(read) => assert_eq!(read, 0),
        }
    }

    #[test]
    fn endless_stderr_does_not_block() {
        let (_, why) = run_shell_sensor("yes | head -c 1000000 >&2; exit 7");
        let (how, stderr) = why.split_at("ended unexpectedly (exit status: 7): ".len());
        assert_eq!(how, "ended unexpectedly (exit status: 7): ");
        assert!(
            !stderr.is_empty() && stderr.len() <= MAX_STDERR_LINE,
            "{stderr}"
        );
    }
}
