//! The SHA-256 of what processes execute, for verdicts on rogues, where the rules know
//! some. The file may lie on a disk that hangs, and is long: a thread of its own reads
//! one after the other, and each file once.

mod before;

mod file;

use super::asked::{Answer, Asked, Manner};
use crate::procfs::stat::Stat;
use before::Before;
use gpukill_proto::snapshot::ProcessKey;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// A hash in small hexadecimal digits, or why there is none: `it is longer than 512 MiB`.
pub(crate) type Hash = Result<String, String>;

/// Reads what processes execute.
pub(crate) struct Hashes(Asked<ProcessKey, (), Hash>);

const MANNER: Manner = Manner {
    thread: "hashes",
    // It works, and is to take one core at most.
    threads: 1,
    // As many as are watched for rogues.
    queue: 4_096,
    most: 4_096,
    // Of one that could not be asked for then, or executed something else.
    keep: Duration::from_secs(60),
    slow: file::PATIENCE,
};

impl Hashes {
    /// Reads below this root, `/proc` but in tests.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(root: PathBuf) -> std::io::Result<Self> {
        let before = Mutex::new(Before::default());
        let read = move |process: &ProcessKey, ()| {
            yield_to_others();
            read(*process, &root, &before)
        };
        Ok(Self(Asked::start(MANNER, read)?))
    }

    /// The hash of what a process executes, or executed when it was asked for. Asks for
    /// it where it is not known or old, and never waits. Nothing of a process that has
    /// ended.
    pub(crate) fn of(&self, process: ProcessKey) -> Option<Hash> {
        match self.0.of(&process, || ()) {
            Answer::Given(hash) => Some(hash),
            Answer::Failed | Answer::Pending => None,
        }
    }

    /// Forgets the hash of a process, so that it is asked for again; one that was asked
    /// for and is not read yet is not read.
    pub(crate) fn forget(&self, process: ProcessKey) {
        self.0.forget(&process);
    }

    /// Forgets every process but these.
    pub(crate) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.0.keep_only(wanted);
    }
}

/// Has this thread run after all others. Where that is not permitted, it runs as they do.
fn yield_to_others() {
    // Linux: of the calling thread alone.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// The hash of what a process executes.
///
/// # Errors
/// When it is another process by now.
fn read(process: ProcessKey, root: &Path, before: &Mutex<Before>) -> Result<Hash, String> {
    let directory = root.join(process.pid.to_string());
    // Never by its path, which may lead to another file by now, or elsewhere in its
    // container.
    let hash = file::hash(&directory.join("exe"), before);
    match Stat::read(&directory) {
        Ok(stat) if stat.start_ticks == process.start_ticks => Ok(hash),
        Ok(_) | Err(_) => Err("it has ended".to_owned()),
    }
}

#[cfg(test)]
mod tests;
