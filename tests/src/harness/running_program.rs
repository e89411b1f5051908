//! A running program, and its output line by line.

use super::eventually_within;
use super::test_box::COMMAND_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A running program. It is killed when dropped.
pub struct RunningProgram {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl RunningProgram {
    /// How long the next line may take.
    pub(super) const LINE_TIMEOUT: Duration = super::TIMEOUT;

    /// Starts the command.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = read_lines(child.stdout.take().expect("it is piped"));
        let stderr = read_lines(child.stderr.take().expect("it is piped"));
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn next_line(&self) -> String {
        let line = self.stdout.recv_timeout(Self::LINE_TIMEOUT);
        line.unwrap_or_else(|error| {
            panic!("no line: {error}; stderr: {:?}", self.unread_error_lines())
        })
    }

    /// The next line of standard error.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn next_error_line(&self) -> String {
        let line = self.stderr.recv_timeout(Self::LINE_TIMEOUT);
        line.unwrap_or_else(|error| panic!("no line on standard error: {error}"))
    }

    fn unread_error_lines(&self) -> Vec<String> {
        self.stderr.try_iter().collect()
    }

    /// Sends a signal to the program.
    ///
    /// # Panics
    /// When the program has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it runs");
    }

    /// Waits for the program to end. Returns its exit code and the unread lines of standard
    /// output and standard error.
    ///
    /// # Panics
    /// When the program does not end, or is killed by a signal.
    #[must_use]
    pub fn wait(mut self) -> (i32, Vec<String>, Vec<String>) {
        let status = eventually_within(COMMAND_TIMEOUT, "the program ends", || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let code = status.code().unwrap_or_else(|| panic!("{status}"));
        (
            code,
            remaining_lines(&self.stdout),
            remaining_lines(&self.stderr),
        )
    }
}

/// Reads lines in a thread. The last line may lack its newline.
pub(super) fn read_lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn remaining_lines(lines: &Receiver<String>) -> Vec<String> {
    std::iter::from_fn(|| lines.recv_timeout(RunningProgram::LINE_TIMEOUT).ok()).collect()
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
