//! The Slurm account of a job, from the environment of its processes. The value is the user's own
//! claim; `ProcessFacts::account` says what it is used for.
//!
//! The kernel reads an environment only under a lock of the process's memory, as it does a command
//! line: a process that is stuck in a driver may hold the lock forever. An environment contains
//! secrets, too: one variable of it is kept, and nothing else is reported.

use super::background_cache::{BackgroundCache, CachedValue, FetchPolicy};
use crate::procfs::read_at_most;
use crate::procfs::stat::Stat;
use gpukill_proto::model::{ProcessKey, ProcessLocation, Scheduler};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) struct SlurmAccounts(pub(super) BackgroundCache<ProcessKey, PathBuf, Option<String>>);

const FETCH_POLICY: FetchPolicy = FetchPolicy {
    thread: "accounts",
    // A process that is stuck here blocks its command line, too, which is reported.
    threads: 2,
    queue: 8_192,
    max_entries: 65_536,
    // A process without an account is read again: during an exec the kernel returns nothing. A
    // process with an account is not read again.
    refresh_after: Duration::from_secs(60),
    stuck_after: Duration::from_secs(2),
};

/// How much of an environment is read. The environment of a job, with shell functions and module
/// paths, has some dozens of kilobytes.
const ENVIRON_MAX: u64 = 256 << 10;

/// The variable that Slurm sets from version 15.08 on.
const VARIABLE: &[u8] = b"SLURM_JOB_ACCOUNT=";

/// The longest account name in bytes. A longer value is no account.
const NAME_MAX: usize = 255;

impl SlurmAccounts {
    pub(crate) fn new() -> Self {
        let read = |process: &ProcessKey, directory: PathBuf| read_account(*process, &directory);
        Self(BackgroundCache::new(FETCH_POLICY, read))
    }

    /// The account that a process of a Slurm job names; other processes are not read. Requests it
    /// where it is unknown or old, and never waits.
    pub(super) fn get(
        &self,
        process: ProcessKey,
        location: &ProcessLocation,
        directory: impl FnOnce() -> PathBuf,
    ) -> Option<String> {
        let job = location.scheduler.known().and_then(Option::as_ref)?;
        if job.scheduler != Scheduler::Slurm {
            return None;
        }
        match self.0.get(&process, directory) {
            CachedValue::Ready(account) => account,
            CachedValue::Failed | CachedValue::Pending => None,
        }
    }
}

fn read_account(process: ProcessKey, directory: &Path) -> Result<Option<String>, String> {
    let bytes = read_at_most(&directory.join("environ"), ENVIRON_MAX);
    let bytes = bytes.map_err(|error| error.to_string())?;
    // The environment was read by PID, which may have been reused.
    let now = Stat::read(directory).map_err(|error| error.to_string())?;
    if now.start_ticks != process.start_ticks {
        return Err("the process has ended".into());
    }
    Ok(parse_account(&bytes))
}

/// The first value, as programs read it. A value without an end is incomplete and ignored.
pub(super) fn parse_account(environ: &[u8]) -> Option<String> {
    let end = environ.iter().rposition(|byte| *byte == 0)?;
    let mut variables = environ.get(..end)?.split(|byte| *byte == 0);
    let name = variables.find_map(|variable| variable.strip_prefix(VARIABLE))?;
    let name = std::str::from_utf8(name).ok()?;
    let is_name = !name.is_empty() && name.len() <= NAME_MAX && !name.contains(char::is_control);
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn account_is_the_first_complete_value() {
        for (environ, expected) in [
            (&b"A=1\0SLURM_JOB_ACCOUNT=vision\0B=2\0"[..], Some("vision")),
            (b"SLURM_JOB_ACCOUNT=a\0SLURM_JOB_ACCOUNT=b\0", Some("a")),
            (b"SLURM_JOB_ACCOUNT=a b=c\0", Some("a b=c")),
            (b"SLURM_JOB_ACCOUNT=vis", None),
            (b"A=1\0SLURM_JOB_ACCOUNT=vis", None),
            (b"XSLURM_JOB_ACCOUNT=a\0SLURM_JOB_ACCOUNTS=b\0", None),
            (b"SLURM_JOB_ACCOUNT=\0SLURM_JOB_ACCOUNT=b\0", None),
            (b"SLURM_JOB_ACCOUNT=a\x1b\0", None),
            (b"SLURM_JOB_ACCOUNT=\xff\0", None),
            (b"SLURM_JOB_ACCOUNT\0", None),
            (b"", None),
            (b"\0\0", None),
        ] {
            let account = parse_account(environ);
            assert_eq!(account.as_deref(), expected, "{environ:?}");
        }
        let named = |length: usize| {
            let environ = format!("SLURM_JOB_ACCOUNT={}\0", "a".repeat(length));
            parse_account(environ.as_bytes()).map(|name| name.len())
        };
        assert_eq!((named(NAME_MAX), named(NAME_MAX + 1)), (Some(255), None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let account = parse_account(&bytes);
            prop_assert!(account.is_none_or(|name| name.len() <= NAME_MAX));
        }
    }

    #[test]
    fn environment_is_of_the_requested_process() {
        // A child has the environment that the test gives it, in the real `/proc`.
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .env("SLURM_JOB_ACCOUNT", "vision")
            .spawn()
            .unwrap();
        let directory = PathBuf::from(format!("/proc/{}", child.id()));
        let start_ticks = Stat::read(&directory).unwrap().start_ticks;
        let pid = child.id();
        let read = |start_ticks| read_account(ProcessKey { pid, start_ticks }, &directory);
        // Until the exec it has the environment of the test.
        let result = loop {
            match read(start_ticks) {
                Ok(None) => std::thread::yield_now(),
                result => break result,
            }
        };
        let of_another = read(start_ticks + 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(result, Ok(Some("vision".to_owned())));
        assert_eq!(of_another, Err("the process has ended".to_owned()));
        assert!(read(start_ticks).is_err());
    }
}
