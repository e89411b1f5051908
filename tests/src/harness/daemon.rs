//! A running gpukilld.

use super::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A daemon that is up. Killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` and waits until its socket answers or it has ended.
    ///
    /// # Panics
    /// When it does neither.
    pub(super) fn start(command: &mut Command, socket: &Path, log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).expect("a log file");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let child = command.spawn().expect("gpukilld starts");
        let mut daemon = Self { child, log };
        eventually("the daemon answers or ends", || {
            (answers(socket) || daemon.ended().is_some()).then_some(())
        });
        daemon
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Kills its sensor as `kill -9` does.
    ///
    /// # Panics
    /// When it has none.
    pub fn kill_sensor(&self) {
        send(self.sensor(), Signal::KILL);
    }

    /// Stops it in order.
    ///
    /// # Panics
    /// When it does not end, or not well.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = eventually("the daemon stops", || self.ended());
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The memory it holds, in bytes.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The memory of its own that it holds, without what is of files, in bytes.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn anonymous(&self) -> u64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the daemon runs");
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
    }

    /// Its sensor's pid, as soon as it has one.
    ///
    /// # Panics
    /// When it gets none.
    #[must_use]
    pub fn sensor(&self) -> u32 {
        eventually("the daemon has a sensor", || {
            self.child_named("gpukilld-sensor")
        })
    }

    /// The pid of its child whose command line begins so.
    #[must_use]
    pub fn child_named(&self, name: &str) -> Option<u32> {
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

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), signal).expect("it runs");
}

/// A daemon that is up speaks first.
fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok_and(|mut stream| stream.read_exact(&mut [0; 4]).is_ok())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have been stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
