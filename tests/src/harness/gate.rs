//! A stop in the middle of what a daemon does: a look at everybody passes only when a
//! test lets it.

use super::procfs::{Invented, Procfs};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::path::PathBuf;

/// Greater than the pid of any process.
const PID: u32 = 4_194_305;

/// A process that no look at everybody gets past before it is let.
pub struct Gate(PathBuf);

impl Gate {
    /// Closed, in the tree that a daemon reads instead of `/proc`.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(procfs: &Procfs) -> Self {
        procfs.invent(Invented {
            pid: PID,
            name: "gate",
            uid: super::user(2),
            start_ticks: 100,
            cmdline: "gate\0",
            cgroup: "0::/\n",
        });
        let gate = Self(procfs.root().join(PID.to_string()));
        gate.close();
        gate
    }

    fn close(&self) {
        let new = self.0.join("status.new");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &new, FileType::Fifo, mode, 0).expect("a FIFO");
        std::fs::rename(new, self.0.join("status")).expect("a FIFO");
    }

    /// Lets a look pass, and no other; `None` where none waits.
    pub fn open(&self) -> Option<()> {
        let other_side = self.hold()?;
        self.close();
        drop(other_side);
        Some(())
    }

    /// A look that waits, for as long as this is kept; `None` where none does.
    #[must_use]
    pub fn hold(&self) -> Option<OwnedFd> {
        // Opening a FIFO waits for the other side, or fails where it may not.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        open(self.0.join("status"), flags, Mode::empty()).ok()
    }

    /// Takes it away.
    ///
    /// # Panics
    /// When it is gone.
    pub fn remove(self) {
        std::fs::remove_dir_all(self.0).expect("it is there");
    }
}
