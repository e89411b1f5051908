//! Which account a job of Slurm is charged to, by the environment of its processes.
//! That is the user's own word: see `About::account` for what it counts.
//!
//! The kernel gives an environment only under a lock of the other process's memory, as
//! it does a command line: one that is stuck in a driver may hold it for ever. It holds
//! secrets too: one variable of it is kept, and nothing else is told to anybody.

use super::asked::{Answer, Asked, Manner};
use crate::procfs::file::read_at_most;
use crate::procfs::stat::Stat;
use gpukill_proto::snapshot::{Place, ProcessKey, Scheduler};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is known of accounts by now.
pub(crate) struct Accounts(Asked<ProcessKey, PathBuf, Option<String>>);

const MANNER: Manner = Manner {
    thread: "accounts",
    // Who is stuck here is with its command line too, which tells of it.
    threads: 2,
    queue: 8_192,
    most: 65_536,
    // One that names none is asked again: while a process executes something else, the
    // kernel gives nothing. One that names one is not asked for any more.
    keep: Duration::from_secs(60),
    slow: Duration::from_secs(2),
};

/// More of an environment is not read. That of a job, with the functions of a shell
/// and the paths of modules, is some dozens of kilobytes.
const ENVIRON_MAX: u64 = 256 << 10;

/// What Slurm writes it into, from version 15.08 on.
const VARIABLE: &[u8] = b"SLURM_JOB_ACCOUNT=";

/// Bytes of a name. Longer ones are nobody's.
const NAME_MAX: usize = 255;

impl Accounts {
    /// Nothing is read yet.
    pub(crate) fn new() -> Self {
        let read = |process: &ProcessKey, directory: PathBuf| read(*process, &directory);
        Self(Asked::new(MANNER, read))
    }

    /// The account that a process names, whose files these are, where it is in a job
    /// of Slurm: nobody else is asked. Asks where it is not known or old, and never
    /// waits.
    pub(super) fn of(
        &self,
        process: ProcessKey,
        place: &Place,
        directory: impl FnOnce() -> PathBuf,
    ) -> Option<String> {
        let job = place.scheduler.known().and_then(Option::as_ref)?;
        if job.scheduler != Scheduler::Slurm {
            return None;
        }
        match self.0.of(&process, directory) {
            Answer::Given(account) => account,
            Answer::Failed | Answer::Pending => None,
        }
    }

    /// Waits until everything asked so far is read, but not past `deadline`, and not
    /// for one that is stuck.
    pub(super) fn settle(&self, deadline: Instant) {
        self.0.settle(deadline);
    }

    /// Forgets every process but these.
    pub(super) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.0.keep_only(wanted);
    }

    /// Grows whenever another account is known than before.
    pub(super) fn changes(&self) -> u64 {
        self.0.changes()
    }
}

fn read(process: ProcessKey, directory: &Path) -> Result<Option<String>, String> {
    let bytes = read_at_most(&directory.join("environ"), ENVIRON_MAX);
    let bytes = bytes.map_err(|error| error.to_string())?;
    // It was read by the pid, which may have changed hands.
    let now = Stat::read(directory).map_err(|error| error.to_string())?;
    if now.start_ticks != process.start_ticks {
        return Err("the process has ended".into());
    }
    Ok(account(&bytes))
}

/// The first that is written, as programs find it. One without an end is cut off.
pub(super) fn account(environ: &[u8]) -> Option<String> {
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
    fn an_account_is_the_first_that_is_written_whole() {
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
            let told = account(environ);
            assert_eq!(told.as_deref(), expected, "{environ:?}");
        }
        let named = |length: usize| {
            let environ = format!("SLURM_JOB_ACCOUNT={}\0", "a".repeat(length));
            account(environ.as_bytes()).map(|name| name.len())
        };
        assert_eq!((named(NAME_MAX), named(NAME_MAX + 1)), (Some(255), None));
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let told = account(&bytes);
            prop_assert!(told.is_none_or(|name| name.len() <= NAME_MAX));
        }
    }

    #[test]
    fn an_environment_is_read_of_the_process_that_was_asked_for() {
        // A child of ours has what we give it, in the real `/proc`.
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .env("SLURM_JOB_ACCOUNT", "vision")
            .spawn()
            .unwrap();
        let directory = PathBuf::from(format!("/proc/{}", child.id()));
        let start_ticks = Stat::read(&directory).unwrap().start_ticks;
        let pid = child.id();
        let read = |start_ticks| read(ProcessKey { pid, start_ticks }, &directory);
        // It is ours until it executes what it is called by.
        let told = loop {
            match read(start_ticks) {
                Ok(None) => std::thread::yield_now(),
                told => break told,
            }
        };
        let of_another = read(start_ticks + 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(told, Ok(Some("vision".to_owned())));
        assert_eq!(of_another, Err("the process has ended".to_owned()));
        assert!(read(start_ticks).is_err());
    }
}
