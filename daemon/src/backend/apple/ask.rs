//! Asks `ioreg`: the one program that is run for readings, on the one system that
//! has no files for them. What it may take and say is bounded.

use gpukill_proto::text::visible;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// It answers in some ten milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// More than this is not listened to; a client takes a few hundred bytes.
const LONGEST: usize = 4 << 20;

/// How often it is looked whether it has ended, once it has said everything.
const LOOK: Duration = Duration::from_millis(5);

/// What it prints of all entries of a class.
///
/// # Errors
/// Why there is nothing to believe, as in "ioreg …".
pub(super) fn ask(program: &Path, class: &str) -> Result<String, String> {
    within(program, class, PATIENCE)
}

fn within(program: &Path, class: &str, patience: Duration) -> Result<String, String> {
    let deadline = Instant::now() + patience;
    let mut child = Command::new(program)
        // Each entry as a root of its own, without what hangs below it; lines are
        // not cut to the width of a terminal.
        .args(["-r", "-l", "-d", "1", "-w", "0", "-c", class])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .map_err(|error| format!("ioreg does not start: {}", shown(&error)))?;
    let Some(mut output) = child.0.stdout.take() else {
        return Err("ioreg has no output".into());
    };
    let bytes = listen(&mut output, deadline)?;
    child.ended(deadline)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn listen(output: &mut ChildStdout, deadline: Instant) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        wait_for(output, deadline)?;
        match output.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend(buffer.iter().take(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("ioreg cannot be read: {}", shown(&error))),
        }
        if bytes.len() > LONGEST {
            return Err("ioreg says more than 4 MiB".into());
        }
    }
}

/// Until there is something to read, or the end of it.
fn wait_for(output: &ChildStdout, deadline: Instant) -> Result<(), String> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        let left = Timespec::try_from(left).map_err(|_| late())?;
        match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                return Err(format!(
                    "ioreg cannot be waited for: {}",
                    shown(&error.into())
                ));
            }
        }
    }
}

/// A program that runs no longer than this is kept.
struct Running(Child);

impl Running {
    /// Whether it ended, and well.
    fn ended(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("ioreg failed: {status}")),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Ok(None) => return Err(late()),
                Err(error) => return Err(format!("ioreg cannot be waited for: {}", shown(&error))),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing is left to end once it was waited for; std knows, and signals no
        // pid that may be another's.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn late() -> String {
    "ioreg did not answer in time".into()
}

fn shown(error: &std::io::Error) -> String {
    visible(error.to_string().as_bytes(), 80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// What a script in its place is understood to say.
    fn asked(script: &str, patience: Duration) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ioreg");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        // Another thread's child may hold the script open for writing until it runs
        // its own program.
        loop {
            match within(&program, "Class", patience) {
                Err(why) if why.contains("Text file busy") => std::thread::yield_now(),
                result => return result,
            }
        }
    }

    #[test]
    fn what_it_prints_is_heard_and_it_is_asked_for_whole_lines_of_one_class() {
        let long = Duration::from_secs(60);
        let answer = asked("echo \"$*\" \"$HOME\"; pwd", long);
        assert_eq!(answer, Ok("-r -l -d 1 -w 0 -c Class \n/\n".into()));
    }

    #[test]
    fn what_it_does_wrong_is_said_and_ends_it() {
        let long = Duration::from_secs(60);
        let short = Duration::from_millis(300);
        let late = "ioreg did not answer in time";
        for (script, patience, why) in [
            ("exit 3", long, "ioreg failed: exit status: 3"),
            ("exec sleep 60", short, late),
            // It has said everything, and stays.
            ("exec sleep 60 >&-", short, late),
            // What it started holds its output.
            ("sleep 1 &", short, late),
            ("yes | head -c 5000000", long, "ioreg says more than 4 MiB"),
        ] {
            let began = Instant::now();
            assert_eq!(asked(script, patience), Err(why.into()), "{script}");
            assert!(began.elapsed() < Duration::from_secs(50), "{script}");
        }
    }

    #[test]
    fn a_program_that_cannot_run_is_a_failure_with_its_reason() {
        let answer = within(Path::new("/dev/null"), "Class", PATIENCE);
        let why = "ioreg does not start: Permission denied (os error 13)";
        assert_eq!(answer, Err(why.into()));
    }
}
