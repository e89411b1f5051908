//! Blocks the daemon's scan of the process table at a point that the test chooses, or makes each
//! listing of the processes out of date before they are read.

use super::fake_procfs::{FakeProcess, FakeProcfs};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Greater than any pid that Linux assigns.
const GATE_PID: u32 = 4_194_305;

/// A simulated process with a FIFO as its `status` file, so that a scan waits on it.
pub struct ScanGate(PathBuf);

impl ScanGate {
    /// Adds the process to the tree that the daemon reads instead of `/proc`, and blocks scans.
    ///
    /// # Panics
    /// When the FIFO cannot be created.
    #[must_use]
    pub fn new(procfs: &FakeProcfs) -> Self {
        procfs.add_process(FakeProcess {
            pid: GATE_PID,
            name: "gate",
            uid: super::test_uid(2),
            start_ticks: 100,
            cmdline: "gate\0",
            cgroup: "0::/\n",
        });
        let gate = Self(procfs.root().join(GATE_PID.to_string()));
        gate.close();
        gate
    }

    fn close(&self) {
        make_fifo_of_status(&self.0);
    }

    /// Lets one waiting scan continue and blocks the next; `None` if no scan waits.
    pub fn pass_one(&self) -> Option<()> {
        let other_side = self.hold_reader()?;
        self.close();
        drop(other_side);
        Some(())
    }

    /// Holds a waiting scan for as long as the returned descriptor is open; `None` if no scan
    /// waits.
    #[must_use]
    pub fn hold_reader(&self) -> Option<OwnedFd> {
        hold_reader_of_status(&self.0)
    }

    /// Removes the process, so that scans no longer wait.
    ///
    /// # Panics
    /// When the process is already removed.
    pub fn remove(self) {
        std::fs::remove_dir_all(self.0).expect("it is there");
    }
}

/// Replaces the `status` file of a simulated process by a FIFO.
fn make_fifo_of_status(process: &Path) {
    let new = process.join("status.new");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &new, FileType::Fifo, mode, 0).expect("a FIFO");
    std::fs::rename(new, process.join("status")).expect("a FIFO");
}

fn hold_reader_of_status(process: &Path) -> Option<OwnedFd> {
    hold_reader(&process.join("status"))
}

fn hold_reader(fifo: &Path) -> Option<OwnedFd> {
    // Opening a FIFO for writing fails with `NONBLOCK` if it has no reader.
    open(fifo, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok()
}

/// How many ended processes may still have readers: several scans run at once.
const MAX_ENDED: usize = 64;

/// Simulated processes, one at a time: each ends while the daemon reads it, and the next has
/// started by then. No scan can read all processes that it lists.
pub struct ProcessRelay {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessRelay {
    /// Starts the first process in the tree that the daemon reads instead of `/proc`.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn start(procfs: &FakeProcfs) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (until, root) = (Arc::clone(&is_over), procfs.root().to_owned());
        let mut current = start_relay_process(&root, GATE_PID);
        let pids = GATE_PID + 1..;
        let run = move || {
            let mut ended: VecDeque<PathBuf> = VecDeque::new();
            for next in pids {
                let reader = loop {
                    // Readers that found a process just before it ended.
                    for status in &ended {
                        drop(hold_reader(status));
                    }
                    if let Some(reader) = hold_reader_of_status(&current) {
                        break reader;
                    }
                    if until.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                };
                let started = start_relay_process(&root, next);
                let gone = root.join(format!("gone-{next}"));
                std::fs::rename(&current, &gone).expect("a process");
                // A scan that opened the directory before finds that the process has ended, however
                // late it goes on.
                let status = gone.join("status.ended");
                std::fs::rename(gone.join("status"), &status).expect("a FIFO");
                drop(reader);
                ended.push_back(status);
                if ended.len() > MAX_ENDED {
                    ended.pop_front();
                }
                current = started;
            }
        };
        Self {
            is_over,
            thread: Some(std::thread::spawn(run)),
        }
    }
}

impl Drop for ProcessRelay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Creates a process with a FIFO as its `status` file in one step. Returns its directory.
fn start_relay_process(root: &Path, pid: u32) -> PathBuf {
    let new = root.join("new-relay");
    std::fs::create_dir(&new).expect("a directory");
    let stat = FakeProcfs::stat_text(pid, "relay", 100);
    std::fs::write(new.join("stat"), stat).expect("a file");
    make_fifo_of_status(&new);
    let directory = root.join(pid.to_string());
    std::fs::rename(new, &directory).expect("a directory");
    directory
}
