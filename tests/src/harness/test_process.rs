//! Real processes that stand for processes that use a GPU.

use super::fake_driver::remember_process;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// A process that does nothing until it is dropped.
pub struct TestProcess(Child);

impl TestProcess {
    /// Starts a `sleep` with `command` in place of its first argument.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &str) -> Self {
        Self::spawn(Command::new("sleep").arg0(command).arg("1000"))
    }

    /// Starts any command.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_input(command, Stdio::null())
    }

    /// Starts any command with this standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_with_input(command: &mut Command, input: impl Into<Stdio>) -> Self {
        let child = command
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.expect("the process starts");
        remember_process(child.id());
        Self(child)
    }

    /// The pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether the process has not ended.
    ///
    /// # Panics
    /// When its state cannot be read.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        let ended = self.0.try_wait().expect("a child can be waited for");
        ended.is_none()
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first child of a process, if it has a child.
#[must_use]
pub fn first_child(parent: u32) -> Option<u32> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}
