//! The children of the story: this program again, under another name, doing
//! nothing until the demo ends.

use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

/// Set for a child; holds the name that the kernel shows.
const ROLE: &str = "GPUKILL_DEMO_ROLE";

/// The role this process is started for.
pub(crate) fn asked_for() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Takes the name and waits for the demo to close standard input, which it does
/// however it ends.
pub(crate) fn play(name: &str) -> ExitCode {
    if let Ok(name) = CString::new(name) {
        // Only for show.
        let _ = rustix::thread::set_name(&name);
    }
    let _ = io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// A child of the story. Ends when dropped.
pub(crate) struct Role(Child);

impl Role {
    /// Starts one whose command line reads as these words.
    pub(crate) fn start(words: &[&str]) -> io::Result<Self> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(std::env::current_exe()?)
            .arg0(name)
            .args(arguments)
            .env(ROLE, name)
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

    /// Whether it is there still: somebody who tries the demo may end it. Asks how it ended.
    pub(crate) fn is_there(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
