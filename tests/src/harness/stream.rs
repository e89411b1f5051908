//! A program that goes on, read line by line.

use super::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A program whose output is read while it runs. Killed when dropped.
pub struct Stream {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Stream {
    /// How long a line may take.
    pub(super) const PATIENCE: Duration = super::PATIENCE;

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = lines(child.stdout.take().expect("it is piped"));
        let stderr = lines(child.stderr.take().expect("it is piped"));
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Its next line.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn line(&self) -> String {
        let line = self.stdout.recv_timeout(Self::PATIENCE);
        line.unwrap_or_else(|error| panic!("no line: {error}; stderr: {:?}", self.complaints()))
    }

    /// Its next line on standard error.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn complaint(&self) -> String {
        let line = self.stderr.recv_timeout(Self::PATIENCE);
        line.unwrap_or_else(|error| panic!("no complaint: {error}"))
    }

    fn complaints(&self) -> Vec<String> {
        self.stderr.try_iter().collect()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it runs");
    }

    /// Waits for its end: its exit code, and the lines not read yet.
    ///
    /// # Panics
    /// When it does not end, or is killed by a signal.
    #[must_use]
    pub fn end(mut self) -> (i32, Vec<String>, Vec<String>) {
        let status = eventually("the program ends", || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let code = status.code().unwrap_or_else(|| panic!("{status}"));
        (code, rest(&self.stdout), rest(&self.stderr))
    }
}

/// Each line, and what follows the last newline if anything does.
pub(super) fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
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

fn rest(lines: &Receiver<String>) -> Vec<String> {
    std::iter::from_fn(|| lines.recv_timeout(Stream::PATIENCE).ok()).collect()
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
