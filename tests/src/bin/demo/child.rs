//! The child processes of the simulated box: this program again, under another name. They do
//! nothing until the demo ends.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

/// The environment variable of a child; it holds the process name.
const NAME_VARIABLE: &str = "GPUKILL_DEMO_ROLE";

/// Set for a child that starts an orphan and ends.
const PARENT_VARIABLE: &str = "GPUKILL_DEMO_PARENT";

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
    if std::env::var_os(PARENT_VARIABLE).is_some() {
        return match start_orphan() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let _ = io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// A child process. It ends when dropped.
pub(crate) struct DemoChild(Child);

impl DemoChild {
    /// Starts a child with these words as its command line, in the process group of `leader`, or
    /// in one of its own.
    pub(crate) fn start(words: &[&str], leader: Option<&Self>) -> io::Result<Self> {
        let group = leader.map_or(0, Self::pid);
        let child = command(words)?
            .process_group(i32::try_from(group).map_err(io::Error::other)?)
            .stdout(Stdio::null())
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

/// The child of this program with these words as its command line.
fn command(words: &[&str]) -> io::Result<Command> {
    let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name).args(arguments).env(NAME_VARIABLE, name);
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// A worker that outlives its parent and keeps a device file open. It ends when dropped.
pub(crate) struct DemoOrphan {
    pub(crate) pid: u32,
    _input: Option<ChildStdin>,
}

/// Stands for the file of a GPU.
const DEVICE_FILE: &str = "/dev/full";

impl DemoOrphan {
    /// Starts a parent and its worker with these words as their command line, and waits for the end
    /// of the parent.
    pub(crate) fn start(words: &[&str]) -> io::Result<Self> {
        let mut parent = command(words)?
            .env(PARENT_VARIABLE, "yes")
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()?;
        let input = parent.stdin.take();
        let pid = io::read_to_string(parent.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?)?;
        parent.wait()?;
        Ok(Self {
            pid: pid.trim().parse().map_err(io::Error::other)?,
            _input: input,
        })
    }

    /// Whether it runs. A process that has ended has no command line.
    pub(crate) fn is_running(&self) -> bool {
        let command = std::fs::read(format!("/proc/{}/cmdline", self.pid));
        command.is_ok_and(|command| !command.is_empty())
    }
}

/// Starts this program again as the worker, and prints its pid.
fn start_orphan() -> io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut worker = command(&words)?;
    worker.env_remove(PARENT_VARIABLE).stdin(Stdio::inherit());
    worker.stdout(File::options().write(true).open(DEVICE_FILE)?);
    println!("{}", worker.spawn()?.id());
    Ok(())
}

impl Drop for DemoChild {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
