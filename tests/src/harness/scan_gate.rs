//! Blocks the daemon's scan of the process table at a point that the test chooses.

use super::fake_procfs::{FakeProcess, FakeProcfs};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::path::PathBuf;

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
        let new = self.0.join("status.new");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &new, FileType::Fifo, mode, 0).expect("a FIFO");
        std::fs::rename(new, self.0.join("status")).expect("a FIFO");
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
        // Opening a FIFO for writing fails with `NONBLOCK` if it has no reader.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        open(self.0.join("status"), flags, Mode::empty()).ok()
    }

    /// Removes the process, so that scans no longer wait.
    ///
    /// # Panics
    /// When the process is already removed.
    pub fn remove(self) {
        std::fs::remove_dir_all(self.0).expect("it is there");
    }
}
