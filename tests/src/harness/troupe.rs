//! Real processes that a script starts, and whatever those start: all of them
//! carry a mark, and end when the troupe is dropped.

use super::Stage;
use super::stream::lines;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;

/// The variable of the environment that is the mark.
const MARK: &str = "GPUKILL_TROUPE";

/// So often those who are left are killed: one that forks meanwhile is behind.
const ROUNDS: usize = 200;

/// A script's processes.
pub struct Troupe {
    shell: Child,
    mark: String,
    said: Receiver<String>,
}

impl Troupe {
    /// Runs `script` with bash, where `launcher` is another shell and `worker`
    /// does nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(stage: &Stage, script: &str) -> Self {
        Self::of(stage, Command::new("bash").args(["-c", script]))
    }

    /// Runs any command so.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn of(stage: &Stage, command: &mut Command) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for (name, program) in [("launcher", "/bin/sh"), ("worker", "/bin/sleep")] {
            let link = stage.path(name);
            if !link.exists() {
                std::os::unix::fs::symlink(program, link).expect("a link");
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", stage.directory().display());
        let mut shell = command
            .env("PATH", path_with(stage))
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a script starts");
        let said = lines(shell.stdout.take().expect("it is piped"));
        Self { shell, mark, said }
    }

    /// The pid of the script itself.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.shell.id()
    }

    /// The next line that it says.
    ///
    /// # Panics
    /// When it says none.
    #[must_use]
    pub fn says(&self) -> String {
        let line = self.said.recv_timeout(super::PATIENCE);
        line.expect("the script says a line")
    }

    /// The next lines, which are pids.
    ///
    /// # Panics
    /// When they are none.
    #[must_use]
    pub fn pids<const N: usize>(&self) -> [u32; N] {
        std::array::from_fn(|_| self.says().trim().parse().expect("a pid"))
    }

    /// What it has said by now and nobody has heard.
    #[must_use]
    pub fn murmurs(&self) -> Vec<String> {
        self.said.try_iter().collect()
    }

    /// Who of them has not ended, the script included.
    ///
    /// # Panics
    /// When `/proc` cannot be read.
    #[must_use]
    pub fn left(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.mark);
        let entries = std::fs::read_dir("/proc").expect("processes");
        let pids = entries.flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            // Of one that has ended it is empty.
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|it| it == mark.as_bytes()).then_some(pid)
        });
        pids.collect()
    }
}

fn path_with(stage: &Stage) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = [PathBuf::from(stage.directory())].into_iter();
    std::env::join_paths(directories.chain(std::env::split_paths(&path))).expect("a PATH")
}

impl Drop for Troupe {
    fn drop(&mut self) {
        for _ in 0..ROUNDS {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            for signal in [Signal::STOP, Signal::KILL] {
                for pid in &left {
                    let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
                    // It may have ended by itself.
                    let _ = pid.map(|pid| kill_process(pid, signal));
                }
            }
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
