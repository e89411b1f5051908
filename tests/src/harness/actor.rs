//! Real processes that stand for those that use a GPU.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// A process that does nothing until it is dropped.
pub struct Actor(Child);

impl Actor {
    /// Starts one whose command line is `command` and the time it sleeps.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(command: &str) -> Self {
        Self::of(Command::new("sleep").arg0(command).arg("1000"))
    }

    /// Starts any command as an actor.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        Self::with(command, Stdio::null())
    }

    /// Starts any command as an actor that has this for its input.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with(command: &mut Command, input: impl Into<Stdio>) -> Self {
        let child = command
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("an actor starts"))
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it goes on.
    ///
    /// # Panics
    /// When the system does not say so.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        let ended = self.0.try_wait().expect("a child can be waited for");
        ended.is_none()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first child of a process, once it has one.
#[must_use]
pub fn child_of(parent: u32) -> Option<u32> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}
