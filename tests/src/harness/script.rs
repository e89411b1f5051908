//! A script and all processes that it starts. They carry a mark in their environment and are
//! killed when the script is dropped.

use super::TestBox;
use super::fake_driver::remember_process;
use super::running_program::read_lines;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;

/// The environment variable that carries the mark.
const MARK_VARIABLE: &str = "GPUKILL_TEST_SCRIPT";

/// The maximum number of kill rounds. Several are needed because a process may fork between the
/// listing and its signal.
const MAX_KILL_ROUNDS: usize = 200;

/// A running script.
pub struct Script {
    shell: Child,
    mark: String,
    lines: Receiver<String>,
}

impl Script {
    /// Runs `script` with bash. In it, `launcher` is a shell and `worker` sleeps.
    ///
    /// # Panics
    /// When bash cannot be started.
    #[must_use]
    pub fn run(test_box: &TestBox, script: &str) -> Self {
        Self::spawn(test_box, Command::new("bash").args(["-c", script]))
    }

    /// Runs any command in the same way.
    ///
    /// # Panics
    /// When the command cannot be started.
    #[must_use]
    pub fn spawn(test_box: &TestBox, command: &mut Command) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for (name, program) in [("launcher", "/bin/sh"), ("worker", "/bin/sleep")] {
            let link = test_box.path(name);
            if !link.exists() {
                std::os::unix::fs::symlink(program, link).expect("a link");
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", test_box.directory().display());
        let mut shell = command
            .env("PATH", path_with_test_programs(test_box))
            .env(MARK_VARIABLE, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A process group of its own: other processes of the suite may not seem to belong to
            // the job of the script.
            .process_group(0)
            .spawn()
            .expect("a script starts");
        let lines = read_lines(shell.stdout.take().expect("it is piped"));
        Self { shell, mark, lines }
    }

    /// The pid of the script.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.shell.id()
    }

    /// The next line that the script prints.
    ///
    /// # Panics
    /// When the script prints none.
    #[must_use]
    pub fn next_line(&self) -> String {
        self.wait_for_line().expect("the script prints a line")
    }

    /// The next line that the script prints; `None` if it prints none.
    #[must_use]
    pub fn wait_for_line(&self) -> Option<String> {
        self.lines.recv_timeout(super::TIMEOUT).ok()
    }

    /// The next lines, each of which is a pid.
    ///
    /// # Panics
    /// When a line is no pid.
    #[must_use]
    pub fn next_pids<const N: usize>(&self) -> [u32; N] {
        std::array::from_fn(|_| {
            let pid = self.next_line().trim().parse().expect("a pid");
            remember_process(pid);
            pid
        })
    }

    /// The lines that are printed but not yet read.
    #[must_use]
    pub fn unread_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// The pids of the processes that have not ended, the script included.
    ///
    /// # Panics
    /// When `/proc` cannot be read.
    #[must_use]
    pub fn running_pids(&self) -> Vec<u32> {
        let mark = format!("{MARK_VARIABLE}={}", self.mark);
        let entries = std::fs::read_dir("/proc").expect("processes");
        let pids = entries.flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            // The environment of an ended process is empty.
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|it| it == mark.as_bytes()).then_some(pid)
        });
        pids.collect()
    }
}

fn path_with_test_programs(test_box: &TestBox) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = [PathBuf::from(test_box.directory())].into_iter();
    std::env::join_paths(directories.chain(std::env::split_paths(&path))).expect("a PATH")
}

impl Drop for Script {
    fn drop(&mut self) {
        for _ in 0..MAX_KILL_ROUNDS {
            let left = self.running_pids();
            if left.is_empty() {
                break;
            }
            for signal in [Signal::STOP, Signal::KILL] {
                for pid in &left {
                    let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
                    // The script may have ended by itself.
                    let _ = pid.map(|pid| kill_process(pid, signal));
                }
            }
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
