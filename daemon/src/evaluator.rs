//! Rules of others, read and tried in a short-lived child: this program, started again
//! without a capability and with limits of memory and time. What compiling their patterns
//! needs goes with the child; the daemon gets the answer.

pub(crate) mod child;

use crate::audit::RulesOf;
use gpukill_policy::guard::Grant;
use gpukill_policy::guard::losses::Present;
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

/// What a child is to do with rules.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Read them: answered with `Result<(), Vec<Wrong>>`.
    Check {
        /// Whether they are the guard's; else they are those on rogues.
        is_guard: bool,
        /// The file.
        text: String,
    },
    /// Say what they would have done: answered with `Result<ReplayReport, Refusal>`.
    Replay {
        /// Of the store.
        directory: PathBuf,
        /// The file.
        text: String,
        /// The snoozes that hold or held of late.
        snoozes: Vec<Grant>,
        /// From then on.
        since: Timestamp,
        /// Until then.
        until: Timestamp,
        /// How things are now, where that is until now.
        present: Option<Present>,
    },
}

impl Request {
    /// Rules of this kind are to be read.
    pub(crate) fn check(of: RulesOf, text: &str) -> Self {
        Self::Check {
            is_guard: of == RulesOf::Guard,
            text: text.to_owned(),
        }
    }

    /// The most memory that may be allocated for it. Rules that are read come into
    /// force, and are kept in the daemon; a replay holds what it found until its end.
    const fn memory(&self) -> u64 {
        match self {
            Self::Check { .. } => 48 << 20,
            Self::Replay { .. } => 256 << 20,
        }
    }

    /// The most time on a processor, in seconds. A month of a large box takes some
    /// seconds to replay.
    const fn seconds(&self) -> u64 {
        match self {
            Self::Check { .. } => 30,
            Self::Replay { .. } => 600,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nobody wants it any more.
    Unwanted,
    /// The child ended without one; says why.
    Ended(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Ended(error.to_string())
    }
}

/// Has a child do it, and ends that when the answer is wanted no more. Blocks.
///
/// # Errors
/// When there is no answer.
pub(crate) fn evaluate<T: DeserializeOwned>(
    request: &Request,
    is_wanted: &dyn Fn() -> bool,
) -> Result<T, Failed> {
    let bytes = encode(request).map_err(io::Error::other)?;
    let mut child = Evaluator::spawn()?;
    // The child reads all before it answers. One that ends early says so by its status.
    let mut input = child.0.stdin.take();
    let written = input.as_mut().map(|input| input.write_all(&bytes));
    drop(input);
    let mut answer = Vec::new();
    if let (Some(Ok(())), Some(mut output)) = (written, child.0.stdout.take()) {
        answer = read_while(&mut output, is_wanted)?;
    }
    let status = child.0.wait()?;
    if !status.success() {
        return Err(Failed::Ended(format!(
            "reading them takes more than {} MiB of memory or {} s: use fewer or simpler patterns",
            request.memory() >> 20,
            request.seconds(),
        )));
    }
    decode(&answer).map_err(|error| Failed::Ended(error.to_string()))
}

/// How often it is looked whether the answer is still wanted.
const STEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

fn read_while(output: &mut ChildStdout, is_wanted: &dyn Fn() -> bool) -> Result<Vec<u8>, Failed> {
    let (mut answer, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if !is_wanted() {
            return Err(Failed::Unwanted);
        }
        let mut ready = [PollFd::new(output, PollFlags::IN)];
        match poll(&mut ready, Some(&STEP)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        match output.read(&mut chunk)? {
            0 => return Ok(answer),
            length if answer.len() + length > MAX_RESPONSE => {
                return Err(Failed::Ended("the answer is too long".to_owned()));
            }
            length => answer.extend_from_slice(chunk.get(..length).unwrap_or_default()),
        }
    }
}

/// A child, which ends with this.
struct Evaluator(Child);

impl Evaluator {
    fn spawn() -> io::Result<Self> {
        // The running program itself, even when an upgrade has replaced its file.
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

impl Drop for Evaluator {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
