//! Reads and tries untrusted rules in a short-lived child: this program, started again without
//! capabilities and with limits on memory and time. The memory for compiled patterns is freed with
//! the child; the daemon gets only the answer.

pub(crate) mod child;

use crate::store::RuleSetKind;
use gpukill_policy::guard::SnoozeGrant;
use gpukill_policy::guard::device_losses::PresentFacts;
use gpukill_proto::transport::MAX_RESPONSE;
use gpukill_proto::transport::codec::{decode, encode};
use gpukill_proto::units::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A task for the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EvaluatorRequest {
    /// Check rules: answered with `Result<(), Vec<RulesMistake>>`.
    Check {
        /// Whether these are rules of the guard; otherwise rogue rules.
        is_guard: bool,
        text: String,
    },
    /// Replay rules: answered with `Result<ReplayReport, Refusal>`.
    Replay {
        directory: PathBuf,
        text: String,
        /// The active and recent snoozes.
        snoozes: Vec<SnoozeGrant>,
        /// The start of the replay.
        since: Timestamp,
        /// The end of the replay.
        until: Timestamp,
        /// The current facts, if the replay ends now.
        present: Option<PresentFacts>,
    },
}

impl EvaluatorRequest {
    pub(crate) fn check(of: RuleSetKind, text: &str) -> Self {
        Self::Check {
            is_guard: of == RuleSetKind::Guard,
            text: text.to_owned(),
        }
    }

    /// The maximum memory for the task. Checked rules come into force and stay in the daemon; a
    /// replay holds its results until its end.
    const fn memory_limit(&self) -> u64 {
        match self {
            Self::Check { .. } => 48 << 20,
            Self::Replay { .. } => 256 << 20,
        }
    }

    /// The maximum processor time, in seconds. A replay of a month of a large host takes some
    /// seconds.
    const fn cpu_seconds(&self) -> u64 {
        match self {
            Self::Check { .. } => 30,
            Self::Replay { .. } => 600,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum EvaluatorError {
    /// The caller no longer wants it.
    Cancelled,
    /// The child ended without an answer; holds the reason.
    Ended(String),
}

impl From<io::Error> for EvaluatorError {
    fn from(error: io::Error) -> Self {
        Self::Ended(error.to_string())
    }
}

/// Runs a task in a child, which is ended when the answer is no longer wanted. Blocks.
///
/// # Errors
/// If there is no answer.
pub(crate) fn run_in_child<T: DeserializeOwned>(
    request: &EvaluatorRequest,
    is_wanted: &dyn Fn() -> bool,
) -> Result<T, EvaluatorError> {
    let bytes = encode(request).map_err(io::Error::other)?;
    let mut child = EvaluatorProcess::spawn()?;
    // The child reads everything before it answers. If it ends early, its status says why.
    let mut input = child.0.stdin.take();
    let written = input.as_mut().map(|input| input.write_all(&bytes));
    drop(input);
    let mut answer = Vec::new();
    if let (Some(Ok(())), Some(mut output)) = (written, child.0.stdout.take()) {
        answer = read_answer(&mut output, is_wanted)?;
    }
    let status = child.0.wait()?;
    if !status.success() {
        return Err(EvaluatorError::Ended(format!(
            "reading the rules takes more than {} MiB of memory or {} s: use fewer or simpler \
             patterns",
            request.memory_limit() >> 20,
            request.cpu_seconds(),
        )));
    }
    decode(&answer).map_err(|error| EvaluatorError::Ended(error.to_string()))
}

/// How often `is_wanted` is checked.
const CHECK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

fn read_answer(
    output: &mut ChildStdout,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Vec<u8>, EvaluatorError> {
    let (mut answer, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if !is_wanted() {
            return Err(EvaluatorError::Cancelled);
        }
        let mut ready = [PollFd::new(output, PollFlags::IN)];
        match poll(&mut ready, Some(&CHECK_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        match output.read(&mut chunk)? {
            0 => return Ok(answer),
            length if answer.len() + length > MAX_RESPONSE => {
                return Err(EvaluatorError::Ended("the answer is too long".to_owned()));
            }
            length => answer.extend_from_slice(chunk.get(..length).unwrap_or_default()),
        }
    }
}

/// A child, which is ended when this is dropped.
struct EvaluatorProcess(Child);

impl EvaluatorProcess {
    fn spawn() -> io::Result<Self> {
        // The running program itself, even if an upgrade has replaced its file.
        let mut program = Command::new("/proc/self/exe");
        program.arg0("gpukilld-rules").arg("--evaluate");
        let child = program
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for EvaluatorProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
