//! A simulated driver that removes processes from its list after they have ended.

use super::TestBox;
use super::test_box::write_driver_state;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MEMORY_PER_PROCESS: u64 = 1 << 30;

/// The time between two checks for ended processes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Simulates one GPU. Each listed process holds 1 GiB until it has ended and `teardown` has
/// passed. The simulation stops when dropped.
pub struct FakeDriver {
    listed: Arc<Mutex<ProcessList>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct ProcessList {
    directory: PathBuf,
    processes: Vec<ListedProcess>,
}

struct ListedProcess {
    pid: u32,
    /// `None` if the process had ended before it was listed.
    handle: Option<OwnedFd>,
    ended_at: Option<Instant>,
}

impl FakeDriver {
    /// Starts a driver for this box that takes `teardown` to release memory.
    #[must_use]
    pub fn start(test_box: &TestBox, teardown: Duration) -> Self {
        let listed = Arc::new(Mutex::new(ProcessList {
            directory: test_box.directory().to_owned(),
            processes: Vec::new(),
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, stopped) = (Arc::clone(&listed), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                lock(&of_thread).remove_ended(teardown);
                std::thread::sleep(POLL_INTERVAL);
            }
        });
        lock(&listed).write_state();
        Self {
            listed,
            stop,
            thread: Some(thread),
        }
    }

    /// Adds processes to the list.
    pub fn add_processes(&self, pids: &[u32]) {
        let mut listed = lock(&self.listed);
        listed
            .processes
            .extend(pids.iter().map(|pid| ListedProcess {
                pid: *pid,
                handle: open_pidfd(*pid),
                ended_at: None,
            }));
        listed.write_state();
    }
}

impl ProcessList {
    /// Removes the processes that ended at least `teardown` ago.
    fn remove_ended(&mut self, teardown: Duration) {
        let now = Instant::now();
        for process in &mut self.processes {
            if process.ended_at.is_none() && process.handle.as_ref().is_none_or(has_ended) {
                process.ended_at = Some(now);
            }
        }
        let before = self.processes.len();
        let is_held =
            |process: &ListedProcess| process.ended_at.is_none_or(|at| now < at + teardown);
        self.processes.retain(is_held);
        if self.processes.len() != before {
            self.write_state();
        }
    }

    fn write_state(&self) {
        let processes = self.processes.iter();
        let rows: Vec<_> = processes
            .map(|process| json!({"pid": process.pid, "memory": MEMORY_PER_PROCESS}))
            .collect();
        let used = MEMORY_PER_PROCESS * rows.len() as u64;
        let memory = json!({"total": 1024 * MEMORY_PER_PROCESS, "used": used});
        write_driver_state(
            &self.directory,
            &json!({"gpus": [{"memory": memory, "processes": rows}]}),
        );
    }
}

fn lock(listed: &Mutex<ProcessList>) -> std::sync::MutexGuard<'_, ProcessList> {
    listed.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Whether all threads have ended: a process runs on after its first thread has ended.
fn has_ended(handle: &OwnedFd) -> bool {
    let mut handles = [PollFd::new(handle, PollFlags::IN)];
    matches!(poll(&mut handles, Some(&Timespec::default())), Ok(1..))
}

impl Drop for FakeDriver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread means that the test has failed already.
            let _ = thread.join();
        }
    }
}

/// The start times of the processes of tests, by pid.
static STARTS: Mutex<BTreeMap<u32, Option<u64>>> = Mutex::new(BTreeMap::new());

/// Remembers which process has this pid. On a busy machine another process may have it soon.
pub(super) fn remember_process(pid: u32) {
    let mut starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    starts.insert(pid, start_ticks(pid));
}

/// The start time of a process, in clock ticks since the boot.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

/// Whether all threads of this process have ended, or no such process exists. A process with the
/// pid of an earlier one of a test is not that process.
#[must_use]
pub fn process_has_ended(pid: u32) -> bool {
    let starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let remembered = starts.get(&pid).copied();
    drop(starts);
    Path::new("/proc")
        .join(pid.to_string())
        .exists()
        .then(|| open_pidfd(pid))
        .flatten()
        .filter(|_| remembered.is_none_or(|start| start == start_ticks(pid)))
        .is_none_or(|handle| has_ended(&handle))
}
