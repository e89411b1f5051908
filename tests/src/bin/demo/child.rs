//! The child processes of the simulated box: this program again, under another name. They do
//! nothing until the demo ends.

use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

/// The environment variable of a child; it holds the process name.
const NAME_VARIABLE: &str = "GPUKILL_DEMO_ROLE";

/// The process name that this process is started for.
pub(crate) fn requested_name() -> Option<String> {
    std::env::var(NAME_VARIABLE).ok()
}

/// Takes the name and waits until standard input closes, which happens however the demo ends.
pub(crate) fn run_as_child(name: &str) -> ExitCode {
    if let Ok(name) = CString::new(name) {
        // The name is only for display.
        let _ = rustix::thread::set_name(&name);
    }
    let _ = io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// A child process. It ends when dropped.
pub(crate) struct DemoChild(Child);

impl DemoChild {
    /// Starts a child with these words as its command line.
    pub(crate) fn start(words: &[&str]) -> io::Result<Self> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(std::env::current_exe()?)
            .arg0(name)
            .args(arguments)
            .env(NAME_VARIABLE, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether the child runs: a user who tries the demo may end it. Reaps the child if it has
    /// ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for DemoChild {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
