//! One reset at a time on a box, also where the program that began the last one is
//! gone: half a reset is worse than a late one, so what does it goes on by itself.

use super::Refused;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A check has the lock for a moment, and must not keep a reset from beginning.
const PATIENCE: Duration = Duration::from_secs(1);

const STEP: Duration = Duration::from_millis(20);

/// The right to reset. The kernel takes it back when everybody has ended who has
/// the file open from here: this program and whatever it had do the reset.
pub(super) struct Alone(File);

/// Refuses while another reset goes on, and where that cannot be told.
pub(super) fn alone(path: &Path) -> Result<Alone, Refused> {
    let cannot = |error: Errno| {
        let path = path.display();
        Refused::Failed(format!(
            "whether another reset goes on cannot be told: {path}: {error}"
        ))
    };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // Root's alone: whoever could open it could keep every reset from beginning.
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(cannot)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Alone(file.into())),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(STEP),
            Err(Errno::WOULDBLOCK) => {
                return Err(Refused::Busy(
                    "an earlier reset goes on, of this GPU or another: nothing was done; try \
                     again when it has ended"
                        .to_owned(),
                ));
            }
            Err(error) => return Err(cannot(error)),
        }
    }
}

impl Alone {
    /// The same right, for somebody who may go on longer.
    pub(super) fn shared(&self) -> Result<Self, String> {
        let again = self.0.try_clone();
        again
            .map(Self)
            .map_err(|error| format!("a file cannot be opened again: {error}"))
    }
}

impl From<Alone> for Stdio {
    /// A standard input that is empty. Whom a tool leaves behind has another one,
    /// as daemons have, and keeps nobody waiting.
    fn from(alone: Alone) -> Self {
        alone.0.into()
    }
}
