//! Runs `ioreg`, the only program that is run for readings, on the only system that has no files
//! for them. Its time and its output are bounded.

use gpukill_proto::text::sanitize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// `ioreg` answers in about ten milliseconds.
const IOREG_TIMEOUT: Duration = Duration::from_secs(2);

/// Longer output is refused; a client takes a few hundred bytes.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// How often to check whether the program has exited, once its output has ended.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Returns what `ioreg` prints of all entries of a class.
///
/// # Errors
/// When there is no trustworthy output, as "ioreg …".
pub(super) fn run_ioreg(program: &Path, class: &str) -> Result<String, String> {
    run_with_timeout(program, class, IOREG_TIMEOUT)
}

fn run_with_timeout(program: &Path, class: &str, timeout: Duration) -> Result<String, String> {
    let deadline = Instant::now() + timeout;
    let mut child = Command::new(program)
        // Each entry is a root of its own, without its subtree; lines are not cut to the width of a
        // terminal.
        .args(["-r", "-l", "-d", "1", "-w", "0", "-c", class])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(IoregProcess)
        .map_err(|error| format!("ioreg does not start: {}", printable_error(&error)))?;
    let Some(mut output) = child.0.stdout.take() else {
        return Err("ioreg has no output".into());
    };
    let bytes = read_output(&mut output, deadline)?;
    child.wait_success(deadline)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_output(output: &mut ChildStdout, deadline: Instant) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        wait_readable(output, deadline)?;
        match output.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend(buffer.iter().take(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("ioreg cannot be read: {}", printable_error(&error))),
        }
        if bytes.len() > MAX_OUTPUT_BYTES {
            return Err("ioreg printed more than 4 MiB".into());
        }
    }
}

/// Waits until there is output to read, or its end.
fn wait_readable(output: &ChildStdout, deadline: Instant) -> Result<(), String> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timeout_error());
        }
        let left = Timespec::try_from(left).map_err(|_| timeout_error())?;
        match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                return Err(format!(
                    "ioreg cannot be waited for: {}",
                    printable_error(&error.into())
                ));
            }
        }
    }
}

/// A running child, which is killed when this is dropped.
struct IoregProcess(Child);

impl IoregProcess {
    /// Waits for the exit; fails unless the program exited with success.
    fn wait_success(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("ioreg failed: {status}")),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(EXIT_CHECK_INTERVAL),
                Ok(None) => return Err(timeout_error()),
                Err(error) => {
                    return Err(format!(
                        "ioreg cannot be waited for: {}",
                        printable_error(&error)
                    ));
                }
            }
        }
    }
}

impl Drop for IoregProcess {
    fn drop(&mut self) {
        // After a successful wait nothing is left to end: std knows that, and signals no pid that
        // another process may have.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn timeout_error() -> String {
    "ioreg did not answer in time".into()
}

fn printable_error(error: &std::io::Error) -> String {
    sanitize(error.to_string().as_bytes(), 80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Runs a script in place of `ioreg` and returns the parsed answer.
    fn run_script(script: &str, timeout: Duration) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ioreg");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        // A child of another thread may hold the script open for writing until it runs its own
        // program.
        loop {
            match run_with_timeout(&program, "Class", timeout) {
                Err(why) if why.contains("Text file busy") => std::thread::yield_now(),
                result => return result,
            }
        }
    }

    #[test]
    fn requests_whole_lines_of_one_class() {
        let long = Duration::from_secs(60);
        let answer = run_script("echo \"$*\" \"$HOME\"; pwd", long);
        assert_eq!(answer, Ok("-r -l -d 1 -w 0 -c Class \n/\n".into()));
    }

    #[test]
    fn misbehaviour_is_reported_and_ends_it() {
        let long = Duration::from_secs(60);
        let short = Duration::from_millis(300);
        let late = "ioreg did not answer in time";
        for (script, timeout, why) in [
            ("exit 3", long, "ioreg failed: exit status: 3"),
            ("exec sleep 60", short, late),
            // It has closed its output and stays.
            ("exec sleep 60 >&-", short, late),
            // Its child holds the output open.
            ("sleep 1 &", short, late),
            (
                "yes | head -c 5000000",
                long,
                "ioreg printed more than 4 MiB",
            ),
        ] {
            let start = Instant::now();
            assert_eq!(run_script(script, timeout), Err(why.into()), "{script}");
            assert!(start.elapsed() < Duration::from_secs(50), "{script}");
        }
    }

    #[test]
    fn a_program_that_cannot_run_fails() {
        let answer = run_with_timeout(Path::new("/dev/null"), "Class", IOREG_TIMEOUT);
        let why = "ioreg does not start: Permission denied (os error 13)";
        assert_eq!(answer, Err(why.into()));
    }
}
