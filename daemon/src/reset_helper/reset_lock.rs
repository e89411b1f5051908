//! Allows one reset at a time on a host, even if the program that started the last one is gone: an
//! incomplete reset is worse than a late one, so the reset continues without it.

use super::HelperError;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A check holds the lock for a moment, and must not prevent a reset.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The right to reset. The kernel takes it back when all processes that inherited the file have
/// ended: this program and the tool that does the reset.
pub(super) struct ResetLock(File);

/// Refuses while another reset runs, and if that cannot be determined.
pub(super) fn acquire(path: &Path) -> Result<ResetLock, HelperError> {
    let cannot = |error: Errno| {
        let path = path.display();
        HelperError::Failed(format!(
            "cannot determine whether another reset is running: {path}: {error}"
        ))
    };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // Only root may open it: any other process that opens it could prevent every reset.
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(cannot)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(ResetLock(file.into())),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_POLL_INTERVAL)
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(HelperError::Busy(
                    "another reset is running, of this GPU or another: nothing was done; try again \
                     when it has ended"
                        .to_owned(),
                ));
            }
            Err(error) => return Err(cannot(error)),
        }
    }
}

impl ResetLock {
    /// The same right, for a tool that may run longer.
    pub(super) fn try_clone(&self) -> Result<Self, String> {
        let again = self.0.try_clone();
        again
            .map(Self)
            .map_err(|error| format!("cannot duplicate a file descriptor: {error}"))
    }
}

impl From<ResetLock> for Stdio {
    /// An empty standard input that carries the lock. Daemons that a tool leaves behind replace
    /// their standard input and so release the lock.
    fn from(lock: ResetLock) -> Self {
        lock.0.into()
    }
}
