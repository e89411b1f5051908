//! A stand-in driver that takes processes off its list when they have ended.

use super::Stage;
use super::stage::play;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What each process holds.
const EACH: u64 = 1 << 30;

/// The time between two looks for who has ended.
const STEP: Duration = Duration::from_millis(5);

/// Plays one GPU, of which each listed process holds a GiB until it has ended,
/// and as long after that as tearing it down takes. Stops when dropped.
pub struct Driver {
    listed: Arc<Mutex<Listed>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Listed {
    directory: PathBuf,
    processes: Vec<Process>,
}

struct Process {
    pid: u32,
    /// `None` where it had ended before it was listed.
    handle: Option<OwnedFd>,
    ended: Option<Instant>,
}

impl Driver {
    /// A driver of this box, which takes `teardown` to give memory back.
    #[must_use]
    pub fn start(stage: &Stage, teardown: Duration) -> Self {
        let listed = Arc::new(Mutex::new(Listed {
            directory: stage.directory().to_owned(),
            processes: Vec::new(),
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, stopped) = (Arc::clone(&listed), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                lock(&of_thread).forget(teardown);
                std::thread::sleep(STEP);
            }
        });
        lock(&listed).play();
        Self {
            listed,
            stop,
            thread: Some(thread),
        }
    }

    /// Lists these too, from now on.
    pub fn lists(&self, pids: &[u32]) {
        let mut listed = lock(&self.listed);
        listed.processes.extend(pids.iter().map(|pid| Process {
            pid: *pid,
            handle: handle(*pid),
            ended: None,
        }));
        listed.play();
    }
}

impl Listed {
    /// Takes off the list who has ended so long ago.
    fn forget(&mut self, teardown: Duration) {
        let now = Instant::now();
        for process in &mut self.processes {
            if process.ended.is_none() && process.handle.as_ref().is_none_or(has_ended) {
                process.ended = Some(now);
            }
        }
        let before = self.processes.len();
        let is_held = |process: &Process| process.ended.is_none_or(|at| now < at + teardown);
        self.processes.retain(is_held);
        if self.processes.len() != before {
            self.play();
        }
    }

    fn play(&self) {
        let processes = self.processes.iter();
        let rows: Vec<_> = processes
            .map(|process| json!({"pid": process.pid, "memory": EACH}))
            .collect();
        let used = EACH * rows.len() as u64;
        let memory = json!({"total": 1024 * EACH, "used": used});
        play(
            &self.directory,
            &json!({"gpus": [{"memory": memory, "processes": rows}]}),
        );
    }
}

fn lock(listed: &Mutex<Listed>) -> std::sync::MutexGuard<'_, Listed> {
    listed.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// All its threads have: a process whose first one alone has ended goes on.
fn has_ended(handle: &OwnedFd) -> bool {
    let mut handles = [PollFd::new(handle, PollFlags::IN)];
    matches!(poll(&mut handles, Some(&Timespec::default())), Ok(1..))
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The test that drops it has failed already where this has.
            let _ = thread.join();
        }
    }
}

/// Whether this process, and not only its first thread, has ended or is nobody's.
#[must_use]
pub fn is_over(pid: u32) -> bool {
    Path::new("/proc")
        .join(pid.to_string())
        .exists()
        .then(|| handle(pid))
        .flatten()
        .is_none_or(|handle| has_ended(&handle))
}
