//! The SHA-256 of what processes execute, for verdicts on rogues, where the rules know
//! some. The file may lie on a disk that hangs, and is long: a thread of its own reads
//! one after the other, and each file once.

mod before;

mod file;

use super::asked::{Answer, Asked, Manner};
use crate::procfs::stat::Stat;
use before::Before;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A hash in small hexadecimal digits, or why there is none: `it is longer than 512 MiB`.
pub(crate) type Hash = Result<String, String>;

/// Reads what processes execute.
pub(crate) struct Hashes {
    asked: Asked<ProcessKey, (), Hash>,
    /// Whose those are that wait for an answer.
    waiting: Mutex<BTreeMap<ProcessKey, Option<u32>>>,
}

/// As many processes of one person wait at a time: whoever else comes then waits for these
/// alone, however many and long their files are.
const OF_PERSON: usize = 2;

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
    pub(crate) fn new(root: PathBuf) -> Self {
        let before = Mutex::new(Before::default());
        let read = move |process: &ProcessKey, ()| {
            yield_to_others();
            read(*process, &root, &before)
        };
        Self {
            asked: Asked::new(MANNER, read),
            waiting: Mutex::default(),
        }
    }

    /// The hash of what a process of this person executes, or executed when it was asked
    /// for. Asks for it where it is not known or old and it is the person's turn, and never
    /// waits. Nothing of a process that has ended.
    pub(crate) fn of(&self, process: ProcessKey, person: Option<u32>) -> Option<Hash> {
        let mut waiting = self.waiting();
        if !waiting.contains_key(&process) {
            // What was forgotten while it was read is asked for behind the others.
            let is_being_read = self.asked.is_on_its_way(&process);
            let others = waiting.values().filter(|it| **it == person);
            if is_being_read || others.count() >= OF_PERSON {
                return None;
            }
        }
        match self.asked.of(&process, || ()) {
            Answer::Given(hash) => {
                waiting.remove(&process);
                Some(hash)
            }
            Answer::Failed => {
                waiting.remove(&process);
                None
            }
            Answer::Pending => {
                waiting.insert(process, person);
                None
            }
        }
    }

    /// Forgets the hash of a process, so that it is asked for again; one that was asked
    /// for and is not read yet is not read.
    pub(crate) fn forget(&self, process: ProcessKey) {
        self.waiting().remove(&process);
        self.asked.forget(&process);
    }

    /// Forgets every process but these.
    pub(crate) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.waiting().retain(|process, _| wanted(process));
        self.asked.keep_only(wanted);
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<ProcessKey, Option<u32>>> {
        // Nothing panics while it holds this lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
