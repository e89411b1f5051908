//! Counts the instructions that a program executes, where valgrind is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of valgrind.
pub(crate) struct Callgrind(PathBuf);

impl Callgrind {
    /// Returns `None` where valgrind is not installed.
    pub(crate) fn find() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let programs = std::env::split_paths(&path).map(|directory| directory.join("valgrind"));
        programs.into_iter().find(|it| it.is_file()).map(Self)
    }

    /// The command under callgrind, which writes to `out`. It gets only its own environment
    /// variables, because the size of the environment changes the work of the loader.
    pub(crate) fn command(&self, command: &Command, out: &Path) -> Command {
        let mut counted = Command::new(&self.0);
        counted
            .args(["--tool=callgrind", "--trace-children=no", "--quiet"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .stdin(Stdio::null());
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                counted.env(key, value);
            }
        }
        counted
    }

    /// The instructions that a command executes, from start to end.
    pub(crate) fn instructions(&self, command: &Command, directory: &Path) -> u64 {
        let out = directory.join("callgrind.out");
        let output = self.command(command, &out).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {stderr}");
        total(&out)
    }
}

/// The total in callgrind's output.
pub(crate) fn total(out: &Path) -> u64 {
    let text = std::fs::read_to_string(out).unwrap();
    let mut lines = text.lines();
    let total = lines.find_map(|line| line.strip_prefix("totals:"));
    total.unwrap().trim().parse().unwrap()
}
