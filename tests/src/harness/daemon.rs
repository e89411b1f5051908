//! A running gpukilld.

use super::{eventually, eventually_equals};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running daemon. It is killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` and waits until its socket answers or the process has ended.
    ///
    /// # Panics
    /// When neither happens.
    pub(super) fn start(command: &mut Command, socket: &Path, log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).expect("a log file");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let child = command.spawn().expect("gpukilld starts");
        let mut daemon = Self { child, log };
        eventually("the daemon answers or ends", || {
            (accepts_connections(socket) || daemon.exit_status().is_some()).then_some(())
        });
        daemon
    }

    /// The pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the daemon has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal to the daemon.
    ///
    /// # Panics
    /// When the daemon has ended.
    pub fn signal(&self, signal: Signal) {
        send_signal(self.child.id(), signal);
    }

    /// Kills the sensor with SIGKILL.
    ///
    /// # Panics
    /// When there is no sensor.
    pub fn kill_sensor(&self) {
        send_signal(self.sensor_pid(), Signal::KILL);
    }

    /// Stops the daemon with SIGTERM.
    ///
    /// # Panics
    /// When it does not end, or does not exit with success.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = eventually("the daemon stops", || self.exit_status());
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill(mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The daemon's log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory, in bytes.
    ///
    /// # Panics
    /// When the daemon has ended.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.memory_field("VmRSS:")
    }

    /// Resident anonymous memory (without file mappings), in bytes.
    ///
    /// # Panics
    /// When the daemon has ended.
    #[must_use]
    pub fn anonymous_bytes(&self) -> u64 {
        self.memory_field("RssAnon:")
    }

    /// Checks that the anonymous memory has not grown by more than `max_growth` bytes for good.
    /// The daemon releases a part of it only when it has noticed that a client has disconnected.
    ///
    /// # Panics
    /// When the memory is not released within a minute; shows by how many bytes the growth is
    /// too great.
    pub fn assert_memory_released(&self, before: u64, max_growth: u64) {
        eventually_equals(&0, || {
            let growth = self.anonymous_bytes().saturating_sub(before);
            growth.saturating_sub(max_growth)
        });
    }

    fn memory_field(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the daemon runs");
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
    }

    /// Waits for the sensor and returns its pid.
    ///
    /// # Panics
    /// When no sensor starts.
    #[must_use]
    pub fn sensor_pid(&self) -> u32 {
        eventually("the daemon has a sensor", || {
            self.child_pid("gpukilld-sensor")
        })
    }

    /// The pid of the child with a command line that begins with `name`.
    #[must_use]
    pub fn child_pid(&self, name: &str) -> Option<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).ok()?;
        let children = tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        children
            .flat_map(|pids| {
                pids.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .find_map(|pid| {
                let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
                command
                    .starts_with(name)
                    .then(|| pid.parse().ok())
                    .flatten()
            })
    }
}

fn send_signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), signal).expect("it runs");
}

/// Whether a daemon listens: it writes first after a connection.
fn accepts_connections(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok_and(|mut stream| stream.read_exact(&mut [0; 4]).is_ok())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have been stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
