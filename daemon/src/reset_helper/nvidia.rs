//! The step for NVIDIA: the only public interface is NVIDIA's own tool (neither `nvml.h` nor the
//! library has a reset). Each command line is fixed except for the address.

use super::ResetHelperArgs;
use super::request::PciAddress;
use super::reset_lock::ResetLock;
use gpukill_proto::text::sanitize;
use rustix::fs::{Access, MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The maximum time of a reset. A GPU with NVLinks takes some seconds.
const RESET_TIMEOUT: ToolTimeout = ToolTimeout::Leave(Duration::from_secs(60));

/// The maximum time of the tool to query or set the persistence mode.
const PERSISTENCE_TIMEOUT: ToolTimeout = ToolTimeout::Kill(Duration::from_secs(15));

/// How long a killed tool may take to end: a tool that is stuck in the driver never ends.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The maximum size of its output.
const MAX_OUTPUT_BYTES: u64 = 4 << 10;

/// How long to wait for the tool, and what to do after that.
#[derive(Debug, Clone, Copy)]
enum ToolTimeout {
    /// The tool is killed.
    Kill(Duration),
    /// The tool continues: an incomplete reset is worse than a late one.
    Leave(Duration),
}

/// How the tool failed.
#[derive(Debug, PartialEq, Eq)]
enum ToolError {
    /// It ended without success; holds the reason.
    Failed(String),
    /// It is still running; holds a description.
    StillRunning(String),
}

/// Checks that the tool exists and is executable.
pub(super) fn check(args: &ResetHelperArgs) -> Result<(), String> {
    let tool = &args.nvidia_smi;
    let cannot = |error: io::Error| format!("{} cannot be run: {error}", tool.display());
    if std::fs::metadata(tool).map_err(cannot)?.is_file() {
        rustix::fs::access(tool, Access::EXEC_OK).map_err(|error| cannot(error.into()))
    } else {
        Err(format!("{} is not a file", tool.display()))
    }
}

/// Switches persistence mode off, calls `check_unused`, resets the GPU, and restores the mode. Returns a note about state that was not restored.
pub(super) fn reset(
    address: &PciAddress,
    args: &ResetHelperArgs,
    lock: &ResetLock,
    check_unused: impl Fn() -> Result<(), String>,
) -> Result<Option<String>, String> {
    let tool = NvidiaSmi {
        path: &args.nvidia_smi,
        lock,
    };
    let address = address.to_string();
    let was_on = tool.is_persistent(&address);
    if was_on {
        // In persistence mode the driver, or nvidia-persistenced, holds the GPU.
        tool.run(&["-i", &address, "-pm", "0"], PERSISTENCE_TIMEOUT)
            .map_err(|failure| {
                let why = failure.into_message();
                format!("persistence mode cannot be switched off: {why}")
            })?;
    }
    let done = match check_unused() {
        Ok(()) => tool.run(&["--gpu-reset", "-i", &address], RESET_TIMEOUT),
        Err(why) => Err(ToolError::Failed(why)),
    };
    let left = if !was_on {
        None
    } else if let Err(ToolError::StillRunning(_)) = &done {
        // Setting it would open the GPU in the middle of its reset.
        Some("persistence mode is off now".to_owned())
    } else {
        let restored = tool
            .run(&["-i", &address, "-pm", "1"], PERSISTENCE_TIMEOUT)
            .err();
        restored.map(|failure| {
            let why = failure.into_message();
            format!("persistence mode is off now, and could not be switched on: {why}")
        })
    };
    match (done.map_err(ToolError::into_message), left) {
        (Ok(_), left) => Ok(left),
        (Err(why), None) => Err(why),
        (Err(why), Some(left)) => Err(format!("{why}; {left}")),
    }
}

impl ToolError {
    fn into_message(self) -> String {
        match self {
            Self::Failed(why) | Self::StillRunning(why) => why,
        }
    }
}

/// The common parts of every run.
struct NvidiaSmi<'a> {
    path: &'a Path,
    lock: &'a ResetLock,
}

impl NvidiaSmi<'_> {
    /// Whether the GPU is in persistence mode; false if the tool does not report it.
    fn is_persistent(&self, address: &str) -> bool {
        let question = [
            "--query-gpu=persistence_mode",
            "--format=csv,noheader",
            "-i",
            address,
        ];
        self.run(&question, PERSISTENCE_TIMEOUT)
            .is_ok_and(|output| output.trim() == "Enabled")
    }

    /// Runs the tool, and waits at most this long for its end.
    fn run(&self, arguments: &[&str], timeout: ToolTimeout) -> Result<String, ToolError> {
        let output = create_output().map_err(|error| {
            ToolError::Failed(format!("cannot create a file for its output: {error}"))
        })?;
        let mut child = self.start(arguments, &output).map_err(ToolError::Failed)?;
        let (ToolTimeout::Kill(time) | ToolTimeout::Leave(time)) = timeout;
        let Some(status) = wait_for_exit(&mut child, time) else {
            let late = format!("nvidia-smi did not end within {} s", time.as_secs());
            return Err(match timeout {
                ToolTimeout::Leave(_) => ToolError::StillRunning(format!(
                    "{late}, and is still running (pid {}): until it ends nothing else is reset",
                    child.id()
                )),
                ToolTimeout::Kill(_) => {
                    ToolError::Failed(format!("{late}, and {}", kill_tool(child)))
                }
            });
        };
        let output = read_output(&output);
        if status.success() {
            return Ok(output);
        }
        Err(ToolError::Failed(describe_failure(status, &output)))
    }

    fn start(&self, arguments: &[&str], output: &File) -> Result<Child, String> {
        let cannot = |error| format!("{} cannot be run: {error}", self.path.display());
        let started = Command::new(self.path)
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(self.lock.try_clone()?)
            .stdout(output.try_clone().map_err(cannot)?)
            .stderr(output.try_clone().map_err(cannot)?)
            .spawn();
        started.map_err(cannot)
    }
}

/// Kills the tool, and describes the result.
fn kill_tool(mut child: Child) -> &'static str {
    // The tool may have ended already.
    let _ = child.kill();
    match wait_for_exit(&mut child, KILL_TIMEOUT) {
        Some(_) => "was killed",
        None => "cannot be killed: it is stuck in the driver",
    }
}

/// A file in memory for the output of a tool. With a pipe that nothing reads, a tool that outlives
/// this program would be ended in the middle of a reset.
fn create_output() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("output", flags)?);
    file.set_len(MAX_OUTPUT_BYTES)?;
    // Output beyond this size is refused.
    fcntl_add_seals(&file, SealFlags::GROW)?;
    Ok(file)
}

fn read_output(output: &File) -> String {
    let mut bytes = Vec::new();
    let mut at = output;
    // As much as can be read.
    let _ = at.rewind().and_then(|()| at.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').to_owned()
}

fn wait_for_exit(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// The reason of a failure, from nvidia-smi(1) and the output.
fn describe_failure(status: ExitStatus, output: &str) -> String {
    let Some(code) = status.code() else {
        return "nvidia-smi was ended by a signal".to_owned();
    };
    let meaning = match code {
        2 => "an argument is wrong for it",
        3 => "this GPU, or its driver, has no reset",
        4 => "it has no permission",
        6 => "it does not find this GPU",
        9 => "the driver is not loaded",
        10 => "there is a problem with the GPU's interrupts",
        12 => "NVML was not found",
        13 => "this NVML lacks a function that it needs",
        14 => "the GPU's infoROM is corrupt",
        15 => "the GPU has fallen off the bus, or cannot be reached for another reason",
        _ => "it failed",
    };
    let output: Vec<&str> = output.split_whitespace().collect();
    let output = sanitize(output.join(" ").as_bytes(), 160);
    if output.is_empty() {
        format!("nvidia-smi ended with {code}: {meaning}")
    } else {
        format!("nvidia-smi ended with {code}: {meaning}: {output}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::HelperError;
    use super::super::reset_lock::acquire;
    use super::*;
    use rustix::process::{Pid, Signal, WaitOptions};

    /// The result of `sleep` with a timeout of one second.
    fn run_sleep(
        timeout: fn(Duration) -> ToolTimeout,
        directory: &Path,
    ) -> Result<String, ToolError> {
        let started = Instant::now();
        let tool = NvidiaSmi {
            path: Path::new("/bin/sleep"),
            lock: &acquire(&directory.join("lock")).unwrap(),
        };
        let output = tool.run(&["1000"], timeout(Duration::from_secs(1)));
        assert!(started.elapsed() < Duration::from_secs(30));
        output
    }

    /// Children of other tests hold it open for a moment too, until they execute.
    fn is_released(lock: &Path) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if acquire(lock).is_ok() {
                return true;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }

    #[test]
    fn hanging_tool_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let why = "nvidia-smi did not end within 1 s, and was killed";
        let failure = ToolError::Failed(why.into());
        assert_eq!(run_sleep(ToolTimeout::Kill, directory.path()), Err(failure));
        assert!(is_released(&directory.path().join("lock")));
    }

    #[test]
    fn slow_reset_continues_and_blocks_others() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        let Err(ToolError::StillRunning(why)) = run_sleep(ToolTimeout::Leave, directory.path())
        else {
            panic!("it is still running");
        };
        let pid = why.strip_prefix("nvidia-smi did not end within 1 s, and is still running (pid ");
        let (pid, rest) = pid.unwrap().split_once(')').unwrap();
        assert_eq!(rest, ": until it ends nothing else is reset");
        let earlier = "another reset is running, of this GPU or another: nothing was done; try \
                       again when it has ended";
        assert_eq!(
            acquire(&lock).err(),
            Some(HelperError::Busy(earlier.into()))
        );
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        rustix::process::waitpid(Some(pid), WaitOptions::empty()).unwrap();
        assert!(is_released(&lock));
    }

    #[test]
    fn output_is_read_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let tool = NvidiaSmi {
            path: Path::new("/bin/sh"),
            lock: &acquire(&directory.path().join("lock")).unwrap(),
        };
        let run = |script| tool.run(&["-c", script], PERSISTENCE_TIMEOUT);
        assert_eq!(run("echo one; echo two >&2"), Ok("one\ntwo\n".into()));
        // With a pipe, a tool that outlives this program would be ended.
        let is_pipe = "[ -p /proc/self/fd/1 ] || [ -p /proc/self/fd/2 ] || echo neither";
        assert_eq!(run(is_pipe), Ok("neither\n".into()));
        let failed = ToolError::Failed("nvidia-smi ended with 7: it failed: no".into());
        assert_eq!(run("echo no >&2; exit 7"), Err(failed));
        let endless = "i=0; while [ $i -lt 9999 ]; do echo 12345678; i=$((i + 1)); done 2>&-; true";
        assert!(run(endless).unwrap().len() as u64 <= MAX_OUTPUT_BYTES);
    }
}
