//! NVIDIA's step: there is no public way but its own tool (neither `nvml.h` nor
//! the library has a reset). Each command line is fixed but for the address.

use super::Args;
use super::alone::Alone;
use super::request::Address;
use gpukill_proto::text::visible;
use rustix::fs::{Access, MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a reset may take. One of a GPU with NVLinks takes some seconds.
const RESET: Patience = Patience::ThenLeave(Duration::from_secs(60));

/// How long the tool may take to ask for the persistence mode or to set it.
const ASK: Patience = Patience::ThenKill(Duration::from_secs(15));

/// How long a tool that was killed may take to end: one that is stuck in the
/// driver never does.
const END: Duration = Duration::from_secs(2);

const STEP: Duration = Duration::from_millis(5);

/// It may say as much.
const OUTPUT: u64 = 4 << 10;

/// How long the tool is waited for, and what becomes of it then.
#[derive(Debug, Clone, Copy)]
enum Patience {
    /// It is killed.
    ThenKill(Duration),
    /// It goes on: half a reset is worse than a late one.
    ThenLeave(Duration),
}

/// How the tool failed.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// It did not do it; says why.
    Ended(String),
    /// It goes on; says so.
    GoesOn(String),
}

/// Whether there is a tool that can be run.
pub(super) fn check(args: &Args) -> Result<(), String> {
    let tool = &args.nvidia_smi;
    let cannot = |error: io::Error| format!("{} cannot be run: {error}", tool.display());
    if std::fs::metadata(tool).map_err(cannot)?.is_file() {
        rustix::fs::access(tool, Access::EXEC_OK).map_err(|error| cannot(error.into()))
    } else {
        Err(format!("{} is no file", tool.display()))
    }
}

/// Takes the GPU out of persistence mode, has `nobody` look whether it is free
/// then, resets it, and puts it back. What comes back says what was not restored.
pub(super) fn reset(
    address: &Address,
    args: &Args,
    alone: &Alone,
    nobody: impl Fn() -> Result<(), String>,
) -> Result<Option<String>, String> {
    let tool = Tool {
        path: &args.nvidia_smi,
        alone,
    };
    let address = address.to_string();
    let was_on = tool.is_persistent(&address);
    if was_on {
        // In persistence mode the driver, or nvidia-persistenced, holds the GPU.
        tool.run(&["-i", &address, "-pm", "0"], ASK)
            .map_err(|failure| {
                let why = failure.why();
                format!("persistence mode cannot be switched off: {why}")
            })?;
    }
    let done = match nobody() {
        Ok(()) => tool.run(&["--gpu-reset", "-i", &address], RESET),
        Err(why) => Err(Failure::Ended(why)),
    };
    let left = if !was_on {
        None
    } else if let Err(Failure::GoesOn(_)) = &done {
        // To set it would be to open the GPU in the middle of its reset.
        Some("persistence mode is off now".to_owned())
    } else {
        let restored = tool.run(&["-i", &address, "-pm", "1"], ASK).err();
        restored.map(|failure| {
            let why = failure.why();
            format!("persistence mode is off now, and could not be switched on: {why}")
        })
    };
    match (done.map_err(Failure::why), left) {
        (Ok(_), left) => Ok(left),
        (Err(why), None) => Err(why),
        (Err(why), Some(left)) => Err(format!("{why}; {left}")),
    }
}

impl Failure {
    fn why(self) -> String {
        match self {
            Self::Ended(why) | Self::GoesOn(why) => why,
        }
    }
}

/// What each of its runs has in common.
struct Tool<'a> {
    path: &'a Path,
    alone: &'a Alone,
}

impl Tool<'_> {
    /// Whether the GPU is in persistence mode. One that does not tell is not.
    fn is_persistent(&self, address: &str) -> bool {
        let question = [
            "--query-gpu=persistence_mode",
            "--format=csv,noheader",
            "-i",
            address,
        ];
        self.run(&question, ASK)
            .is_ok_and(|said| said.trim() == "Enabled")
    }

    /// Runs it to its end, and waits no longer than that.
    fn run(&self, arguments: &[&str], patience: Patience) -> Result<String, Failure> {
        let output = output().map_err(|error| {
            Failure::Ended(format!("there is no place for its output: {error}"))
        })?;
        let mut child = self.start(arguments, &output).map_err(Failure::Ended)?;
        let (Patience::ThenKill(time) | Patience::ThenLeave(time)) = patience;
        let Some(status) = ended(&mut child, time) else {
            let late = format!("nvidia-smi did not end within {} s", time.as_secs());
            return Err(match patience {
                Patience::ThenLeave(_) => Failure::GoesOn(format!(
                    "{late}, and goes on (pid {}): until it ends nothing else is reset",
                    child.id()
                )),
                Patience::ThenKill(_) => Failure::Ended(format!("{late}, and {}", kill(child))),
            });
        };
        let said = said(&output);
        if status.success() {
            return Ok(said);
        }
        Err(Failure::Ended(failure(status, &said)))
    }

    fn start(&self, arguments: &[&str], output: &File) -> Result<Child, String> {
        let cannot = |error| format!("{} cannot be run: {error}", self.path.display());
        let started = Command::new(self.path)
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(self.alone.shared()?)
            .stdout(output.try_clone().map_err(cannot)?)
            .stderr(output.try_clone().map_err(cannot)?)
            .spawn();
        started.map_err(cannot)
    }
}

/// What became of it.
fn kill(mut child: Child) -> &'static str {
    // Gone already is as good.
    let _ = child.kill();
    match ended(&mut child, END) {
        Some(_) => "was killed",
        None => "cannot be killed: it is stuck in the driver",
    }
}

/// Where a tool writes, in memory. A tool that goes on when this program has ended
/// would be ended by a pipe that nobody reads, in the middle of a reset.
fn output() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("output", flags)?);
    file.set_len(OUTPUT)?;
    // What is more than that is refused.
    fcntl_add_seals(&file, SealFlags::GROW)?;
    Ok(file)
}

/// What was written there by now.
fn said(output: &File) -> String {
    let mut bytes = Vec::new();
    let mut at = output;
    // As much as can be read.
    let _ = at.rewind().and_then(|()| at.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').to_owned()
}

fn ended(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(STEP),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// What went wrong, by nvidia-smi(1) and by what it said.
fn failure(status: ExitStatus, said: &str) -> String {
    let Some(code) = status.code() else {
        return "nvidia-smi was ended by a signal".to_owned();
    };
    let meaning = match code {
        2 => "an argument is wrong for it",
        3 => "this GPU, or its driver, has no reset",
        4 => "it has no permission",
        6 => "it finds no such GPU",
        9 => "the driver is not loaded",
        10 => "there is a problem with the GPU's interrupts",
        12 => "NVML was not found",
        13 => "this NVML does not have what it needs",
        14 => "the GPU's infoROM is corrupt",
        15 => "the GPU has fallen off the bus, or cannot be reached for another reason",
        _ => "it failed",
    };
    let said: Vec<&str> = said.split_whitespace().collect();
    let said = visible(said.join(" ").as_bytes(), 160);
    if said.is_empty() {
        format!("nvidia-smi ended with {code}: {meaning}")
    } else {
        format!("nvidia-smi ended with {code}: {meaning}: {said}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Refused;
    use super::super::alone::alone;
    use super::*;
    use rustix::process::{Pid, Signal, WaitOptions};

    /// Of `sleep`, with a second of patience.
    fn slept(patience: fn(Duration) -> Patience, directory: &Path) -> Result<String, Failure> {
        let began = Instant::now();
        let tool = Tool {
            path: Path::new("/bin/sleep"),
            alone: &alone(&directory.join("lock")).unwrap(),
        };
        let said = tool.run(&["1000"], patience(Duration::from_secs(1)));
        assert!(began.elapsed() < Duration::from_secs(30));
        said
    }

    /// Children of other tests have it open for a moment too, until they execute.
    fn is_let_go(lock: &Path) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if alone(lock).is_ok() {
                return true;
            }
            std::thread::sleep(STEP);
        }
        false
    }

    #[test]
    fn a_tool_that_hangs_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let why = "nvidia-smi did not end within 1 s, and was killed";
        let failure = Failure::Ended(why.into());
        assert_eq!(slept(Patience::ThenKill, directory.path()), Err(failure));
        assert!(is_let_go(&directory.path().join("lock")));
    }

    #[test]
    fn a_reset_that_takes_too_long_goes_on_and_no_other_begins_before_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        let Err(Failure::GoesOn(why)) = slept(Patience::ThenLeave, directory.path()) else {
            panic!("it goes on");
        };
        let pid = why.strip_prefix("nvidia-smi did not end within 1 s, and goes on (pid ");
        let (pid, rest) = pid.unwrap().split_once(')').unwrap();
        assert_eq!(rest, ": until it ends nothing else is reset");
        let earlier = "an earlier reset goes on, of this GPU or another: nothing was done; try \
                       again when it has ended";
        assert_eq!(alone(&lock).err(), Some(Refused::Busy(earlier.into())));
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        rustix::process::waitpid(Some(pid), WaitOptions::empty()).unwrap();
        assert!(is_let_go(&lock));
    }

    #[test]
    fn what_a_tool_says_is_heard_and_not_more_than_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let tool = Tool {
            path: Path::new("/bin/sh"),
            alone: &alone(&directory.path().join("lock")).unwrap(),
        };
        let run = |script| tool.run(&["-c", script], ASK);
        assert_eq!(run("echo one; echo two >&2"), Ok("one\ntwo\n".into()));
        // One that goes on without this program would be ended by a pipe.
        let is_pipe = "[ -p /proc/self/fd/1 ] || [ -p /proc/self/fd/2 ] || echo neither";
        assert_eq!(run(is_pipe), Ok("neither\n".into()));
        let failed = Failure::Ended("nvidia-smi ended with 7: it failed: no".into());
        assert_eq!(run("echo no >&2; exit 7"), Err(failed));
        let endless = "i=0; while [ $i -lt 9999 ]; do echo 12345678; i=$((i + 1)); done 2>&-; true";
        assert!(run(endless).unwrap().len() as u64 <= OUTPUT);
    }
}
