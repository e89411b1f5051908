//! The SHA-256 of executables, for rogue rules that list hashes. A file may be long, or on a disk
//! that hangs: a thread of its own reads one file after the other, and each file once.

mod cache;
mod file;

use super::background_cache::{BackgroundCache, CachedValue, FetchPolicy};
use crate::procfs::stat::Stat;
use cache::HashCache;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A hash in lower-case hexadecimal, or the reason for its absence: `it is longer than 512 MiB`.
pub(crate) type HashResult = Result<String, String>;

pub(crate) struct ExecutableHashes {
    cache: BackgroundCache<ProcessKey, (), HashResult>,
    /// The persons of processes that wait for a hash.
    waiting: Mutex<BTreeMap<ProcessKey, Option<u32>>>,
}

/// How many processes of one person wait at a time: a process of another person waits for these
/// only, however many and long that person's files are.
const MAX_WAITING_PER_PERSON: usize = 2;

const FETCH_POLICY: FetchPolicy = FetchPolicy {
    thread: "hashes",
    // Hashing uses one processor at most.
    threads: 1,
    // As many as the rogue watch covers.
    queue: 4_096,
    max_entries: 4_096,
    // For processes with a failed hash, and those that executed another program.
    refresh_after: Duration::from_secs(60),
    stuck_after: file::HASH_TIMEOUT,
};

impl ExecutableHashes {
    pub(crate) fn new(root: PathBuf) -> Self {
        let before = Mutex::new(HashCache::default());
        let read = move |process: &ProcessKey, ()| {
            lower_thread_priority();
            read_hash(*process, &root, &before)
        };
        Self {
            cache: BackgroundCache::new(FETCH_POLICY, read),
            waiting: Mutex::default(),
        }
    }

    /// The hash of the executable of this person's process, as of the request. Requests it where it
    /// is unknown or old and the person's turn has come, and never waits. `None` for a process that
    /// has ended.
    pub(crate) fn get(&self, process: ProcessKey, person: Option<u32>) -> Option<HashResult> {
        let mut waiting = self.waiting();
        if !waiting.contains_key(&process) {
            // A process that was dropped during its read queues again behind the others.
            let is_being_read = self.cache.is_in_flight(&process);
            let others = waiting.values().filter(|it| **it == person);
            if is_being_read || others.count() >= MAX_WAITING_PER_PERSON {
                return None;
            }
        }
        match self.cache.get(&process, || ()) {
            CachedValue::Ready(hash) => {
                waiting.remove(&process);
                Some(hash)
            }
            CachedValue::Failed => {
                waiting.remove(&process);
                None
            }
            CachedValue::Pending => {
                waiting.insert(process, person);
                None
            }
        }
    }

    /// Drops the hash of a process so that it is read again. A queued request is cancelled.
    pub(crate) fn forget(&self, process: ProcessKey) {
        self.waiting().remove(&process);
        self.cache.forget(&process);
    }

    /// Drops all other processes.
    pub(crate) fn keep_only(&self, wanted: impl Fn(&ProcessKey) -> bool) {
        self.waiting().retain_entries(|process, _| wanted(process));
        self.cache.keep_only(wanted);
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<ProcessKey, Option<u32>>> {
        // No code panics while it holds this lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives this thread the lowest priority. Where that is not permitted, it keeps its own.
fn lower_thread_priority() {
    // Linux applies it to the calling thread only.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Hashes the executable of a process.
///
/// # Errors
/// When the process has ended.
fn read_hash(
    process: ProcessKey,
    root: &Path,
    before: &Mutex<HashCache>,
) -> Result<HashResult, String> {
    let directory = root.join(process.pid.to_string());
    // Never by its path, which may lead to another file by now, or to another one in its container.
    let hash = file::hash_file(&directory.join("exe"), before);
    match Stat::read(&directory) {
        Ok(stat) if stat.start_ticks == process.start_ticks => Ok(hash),
        Ok(_) | Err(_) => Err("it has ended".to_owned()),
    }
}

#[cfg(test)]
mod tests;
